"""`barnabas.Admin` and `barnabas.aio.Admin` against a broker of ours: the same story told to both."""

import asyncio
import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.admin.admin_client import KafkaAdminClient
from barnabas.client.admin.configs import ConfigChange, ConfigResource
from barnabas.client.admin.groups import MemberToRemove
from barnabas.client.admin.topics import CreatedTopic, NewTopic
from barnabas.errors import (
    ClientClosed,
    GroupIdNotFound,
    InvalidConfig,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ItemsFailed,
    KeysMove,
    NonEmptyGroup,
    NotController,
    OperationTimedOut,
    ProducerFenced,
    TopicAlreadyExists,
    TopicNotFound,
    TransactionalIdNotFound,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UsageError,
)
from barnabas.testing import Broker
from barnabas.types import TopicPartition


class Awaited:
    """The asyncio front with the synchronous one's manners, on a loop of its own."""

    def __init__(self, **settings: object) -> None:
        self._runner = asyncio.Runner()
        self._admin = barnabas.aio.Admin(**settings)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await getattr(self._admin, name)(*args, **kwargs)

        return lambda *args, **kwargs: self._runner.run(call(*args, **kwargs))

    def close(self) -> None:
        self._runner.run(self._admin.close())
        self._runner.close()


@pytest.fixture(params=[barnabas.Admin, Awaited], ids=["sync", "aio"])
def admin(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Any]:
    admin = request.param(bootstrap_servers=broker.bootstrap_servers, default_api_timeout_ms=60_000)
    yield admin
    admin.close()


def write(broker: Broker, topic: str, *values: bytes) -> None:
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False) as producer:
        for value in values:
            producer.send(topic, value)


def calls() -> list[str]:
    return [name for name, _ in inspect.getmembers(KafkaAdminClient, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("front", [barnabas.Admin, barnabas.aio.Admin])
def test_both_fronts_have_every_call_with_its_words(front: Any) -> None:
    for name in set(calls()) - {"topics_with_records"}:
        assert inspect.signature(getattr(front, name)) == inspect.signature(getattr(KafkaAdminClient, name)), name
        assert getattr(front, name).__doc__ == getattr(KafkaAdminClient, name).__doc__


def test_topics(admin: Any, name: str) -> None:
    made = admin.create_topics([NewTopic(name, partitions=3, configs={"retention.ms": "1000"}), f"{name}-b"])
    assert made[name] == CreatedTopic(name, 3, 1)
    assert {name, f"{name}-b"} <= {topic.name for topic in admin.list_topics()}
    assert sorted(admin.describe_topics(name)[name].partitions) == [0, 1, 2]
    admin.create_partitions({name: 5})
    assert len(admin.describe_topics([name])[name].partitions) == 5
    admin.delete_topics([name])
    with pytest.raises(ItemsFailed) as caught:
        admin.describe_topics([name, f"{name}-b"])
    assert list(caught.value.failed) == [name]
    assert caught.value.only(UnknownTopicOrPartition)
    assert f"{name}-b" in caught.value.succeeded
    assert f"describe_topics failed for 1 of 2: {name}: topic {name!r} does not exist" in str(caught.value)
    admin.delete_topics(f"{name}-b")  # a text is one name


def test_what_succeeded_is_told_beside_what_failed(admin: Any, name: str) -> None:
    admin.create_topics(name)
    with pytest.raises(ItemsFailed) as caught:
        admin.create_topics([name, f"{name}-new"])
    assert caught.value.only(TopicAlreadyExists)
    assert list(caught.value.succeeded) == [f"{name}-new"]
    assert caught.value.attempts[0].error.startswith("TOPIC_ALREADY_EXISTS")
    admin.create_topics(f"{name}-checked", validate_only=True)
    assert f"{name}-checked" not in {topic.name for topic in admin.list_topics()}


def test_records_and_offsets(admin: Any, broker: Broker, name: str) -> None:
    broker.create_topic(name)
    write(broker, name, b"a", b"b", b"c")
    where = TopicPartition(name, 0)
    assert admin.list_offsets({(name, 0): "latest"})[where].offset == 3
    assert admin.list_offsets({where: "max_timestamp"})[where].timestamp > 0
    assert admin.list_offsets({where: 0}, isolation="read_committed")[where].offset == 0
    assert admin.delete_records({where: 2}) == {where: 2}
    assert admin.list_offsets({where: "earliest"})[where].offset == 2
    with pytest.raises(ItemsFailed) as caught:
        admin.list_offsets({where: "latest", (name, 7): "latest", (f"{name}-no", 0): "latest"})
    assert caught.value.only(TopicNotFound)
    assert list(caught.value.succeeded) == [where]
    for wrong in ({where: "soon"}, {name: 1}):
        with pytest.raises(UsageError):
            admin.list_offsets(wrong)


def test_growing_a_topic_with_records_warns(admin: Any, broker: Broker, name: str) -> None:
    admin.create_topics(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        admin.create_partitions({name: 2})
    write(broker, name, b"a")
    with pytest.warns(KeysMove, match=name):
        admin.create_partitions({name: 3})


def test_settings(admin: Any, name: str) -> None:
    admin.create_topics(name)
    topic = ConfigResource("topic", name)
    admin.alter_configs({topic: {"retention.ms": "5000"}, ("broker", "1"): {}})
    admin.alter_configs({topic: [ConfigChange("cleanup.policy", "compact", "append")]})
    found = admin.describe_configs([topic, ("broker", "1")])
    assert found[topic]["retention.ms"].value == "5000"
    assert found[topic]["cleanup.policy"].value == "delete,compact"
    assert found[ConfigResource("broker", "1")]["node.id"].value == "1"
    admin.alter_configs({topic: {"retention.ms": None}})
    entry = admin.describe_configs([topic], keys=["retention.ms"])[topic]["retention.ms"]
    assert entry.source == "STATIC_BROKER_CONFIG"
    assert topic in admin.list_config_resources("topic")
    with pytest.raises(ItemsFailed) as caught:
        admin.alter_configs({topic: {"retention.ms": "soon"}})
    assert caught.value.only(InvalidConfig)
    with pytest.raises(UsageError, match="broker 99 is not in the cluster"):
        admin.describe_configs([("broker", "99")])


def test_brokers(admin: Any, broker: Broker, name: str) -> None:
    admin.create_topics(name)
    cluster = admin.describe_cluster()
    assert cluster.controller_id in cluster.brokers
    [log_dir] = admin.describe_log_dirs(partitions=[(name, 0)])[1]
    assert [(replica.topic, replica.partition) for replica in log_dir.replicas] == [(name, 0)]
    assert "transaction.version" in admin.describe_features().finalized
    assert admin.elect_leaders([(name, 0)]) == {TopicPartition(name, 0): False}


def test_groups(admin: Any, name: str) -> None:
    admin.create_topics(NewTopic(name, partitions=2))
    with pytest.raises(ItemsFailed) as caught:
        admin.describe_groups(name)
    assert caught.value.only(GroupIdNotFound)
    admin.alter_group_offsets(name, {(name, 0): 4, (name, 1): 5})
    assert name in {group.group_id for group in admin.list_groups()}
    assert admin.describe_groups([name])[name].state == "Empty"
    assert {where.partition: o.offset for where, o in admin.list_group_offsets(name).items()} == {0: 4, 1: 5}
    admin.delete_group_offsets(name, [(name, 0)])
    assert list(admin.list_group_offsets(name, [(name, 0), (name, 1)])) == [TopicPartition(name, 1)]
    assert admin.remove_members(name) == []
    with pytest.raises(ItemsFailed) as caught:
        admin.remove_members(name, [MemberToRemove("nobody")])
    assert caught.value.only(UnknownMemberId)
    admin.delete_groups(name)
    assert name not in {group.group_id for group in admin.list_groups()}


def test_transactions(admin: Any, broker: Broker, name: str) -> None:
    broker.create_topic(name)
    assert name not in {t.transactional_id for t in admin.list_transactions(states=["Ongoing"], pattern=name)}
    with pytest.raises(ItemsFailed) as caught:
        admin.describe_transactions(name)
    assert caught.value.only(TransactionalIdNotFound)
    with pytest.raises(UsageError, match="never in state Odd"):
        admin.list_transactions(states=["Odd"])
    assert admin.describe_producers([(name, 0)]) == {TopicPartition(name, 0): []}


@pytest.mark.parametrize("committed", [True, False])
def test_the_transaction_of_another_process_is_ended(admin: Any, broker: Broker, name: str, committed: bool) -> None:
    broker.create_topic(name)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"a").result(60)
        told = producer.metrics()
        who = {key: told[key] for key in ("producer_id", "producer_epoch")}
        producer.close(0)
    with pytest.raises(ProducerFenced, match=name):
        admin.end_transaction(name, **{**who, "producer_epoch": 77}, committed=committed)
    with pytest.raises(InvalidProducerIdMapping, match=name):
        admin.end_transaction(name, **{**who, "producer_id": 77_777}, committed=committed)
    for _ in range(2):
        admin.end_transaction(name, **who, committed=committed)
    with pytest.raises(InvalidTxnState, match=name):
        admin.end_transaction(name, **who, committed=not committed)
    end = admin.list_offsets({(name, 0): "latest"}, isolation="read_committed")[TopicPartition(name, 0)].offset
    assert end == 2
    state = admin.describe_transactions(name)[name].state
    assert state == ("CompleteCommit" if committed else "CompleteAbort")


def test_a_controller_that_moved_is_asked_again(admin: Any, broker: Broker, name: str) -> None:
    broker.faults.error("CREATE_TOPICS", NotController, times=2)
    assert name in admin.create_topics(name)


def test_errors_tell_what_was_tried(admin: Any, broker: Broker, name: str) -> None:
    broker.faults.error("CREATE_TOPICS", NotController, times=None)
    with pytest.raises(ItemsFailed) as caught:
        admin.create_topics(name, timeout=3)
    assert isinstance(caught.value.failed[name], OperationTimedOut)
    assert isinstance(caught.value.failed[name].__cause__, NotController)
    assert "NOT_CONTROLLER" in caught.value.attempts[-1].error


def test_a_port_without_a_broker(broker: Broker) -> None:
    with barnabas.Admin(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises(OperationTimedOut) as caught:
        admin.list_topics(timeout=3)
    assert caught.value.attempts[-1].stage == "tcp"
    assert "connection refused" in str(caught.value)


def test_threads_share_an_admin_and_a_fork_has_its_own(broker: Broker) -> None:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(admin.describe_cluster().controller_id)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert answers == [1] * 8
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if admin.describe_cluster().controller_id == 1 else 1
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert admin.describe_cluster().controller_id == 1
    with pytest.raises(ClientClosed):
        admin.list_topics()


def test_close_ends_a_call_that_waits_between_two_tries(broker: Broker) -> None:
    async def story() -> None:
        admin = barnabas.aio.Admin(bootstrap_servers="127.0.0.1:1")
        call = asyncio.ensure_future(admin.list_groups())
        await asyncio.sleep(0)
        await admin.close()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(call, 60)

    asyncio.run(story())


def test_live_members_are_removed(admin: Any, broker: Broker, name: str) -> None:
    admin.create_topics(NewTopic(name, partitions=2))
    with barnabas.Consumer(name, bootstrap_servers=broker.bootstrap_servers, group_id=name) as consumer:
        while not consumer.assignment():
            consumer.poll(0.05)
        _check_removal(admin, name, consumer.group_metadata().member_id)


def _check_removal(admin: Any, name: str, member_id: str) -> None:
    description = admin.describe_groups(name)[name]
    assert [m.member_id for m in description.members] == [member_id]
    with pytest.raises(ItemsFailed) as caught:
        admin.delete_groups(name)
    assert caught.value.only(NonEmptyGroup)
    with pytest.raises(ItemsFailed) as caught:
        admin.alter_group_offsets(name, {(name, 0): 1})
    assert caught.value.only(UnknownMemberId)
    assert admin.remove_members(name) == [MemberToRemove(member_id)]
    assert admin.describe_groups(name)[name].state == "Empty"


def test_a_marker_is_written_in_the_epoch_that_is_known(admin: Any, broker: Broker, name: str) -> None:
    broker.create_topic(name)
    where = TopicPartition(name, 0)
    admin.abort_transaction(where, producer_id=900_100, producer_epoch=3, coordinator_epoch=0)
    assert admin.list_offsets({where: "latest"})[where].offset == 1
    with pytest.raises(ItemsFailed) as caught:
        admin.abort_transaction(where, producer_id=900_100, producer_epoch=2, coordinator_epoch=0)
    assert caught.value.only(InvalidProducerEpoch)
