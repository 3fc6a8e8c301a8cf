"""Transactions by `barnabas.Producer`, against a broker in this process."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
from barnabas.client.producer.transactions.transaction_manager import PreparedTransaction
from barnabas.errors import CommitFailed, OperationTimedOut, ProducerFenced, UsageError
from barnabas.testing import Broker


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic("t", partitions=2)
    shared.create_topic("in")
    return shared


def producer_of(broker: Broker, transactional_id: str = "tx", **settings: Any) -> barnabas.Producer:
    return barnabas.Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id, linger_ms=0, **settings
    )


def read(broker: Broker, topic: str = "t", *, committed: bool = True) -> list[bytes]:
    """All values up to the end, or up to where an open transaction begins."""
    settings = {"isolation_level": "read_committed" if committed else "read_uncommitted"}
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **settings
    ) as consumer:
        parts = [(topic, index) for index in range(len(broker.end_offsets(topic)))]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        values = []
        while any(consumer.position(where) < end for where, end in ends.items()):
            values += [record.value for record in consumer.poll(1)]
        return sorted(values)


def test_committed_records_are_read_and_aborted_ones_are_not(broker: Broker) -> None:
    with producer_of(broker) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.send("t", b"%d-%d" % (number, partition), partition=partition)
            if number % 3:
                producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert read(broker) == sorted(b"%d-%d" % (n, p) for n in (0, 2, 4) for p in (0, 1))


def test_the_context_manager_commits_or_aborts(broker: Broker) -> None:
    def failing(work: Callable[[], object]) -> None:
        with producer.transaction():
            work()
            raise ZeroDivisionError

    with producer_of(broker) as producer:
        producer.init_transactions()
        with producer.transaction():
            kept = producer.send("t", b"kept")
        assert kept.done()
        with pytest.raises(ZeroDivisionError):
            failing(lambda: producer.send("t", b"lost").result(60))
        with pytest.raises(ZeroDivisionError):
            failing(lambda: producer.send("t", b"unsent"))
        with producer.transaction():
            producer.send("t", b"kept, too")
    assert read(broker) == [b"kept", b"kept, too"]


def test_offsets_go_with_the_transaction(broker: Broker) -> None:
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as source:
        for number in range(10):
            source.send("in", b"%d" % number)
    with (
        barnabas.Consumer(
            "in",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        producer_of(broker) as producer,
    ):
        producer.init_transactions()
        done = 0
        while done < 10:
            records = consumer.poll(1, max_records=3)
            if not records:
                continue
            with producer.transaction():
                for record in records:
                    producer.send("t", record.value)
                after = {("in", 0): records[-1].offset + 1}
                producer.send_offsets_to_transaction(after, consumer.group_metadata())
            done += len(records)
        stale = consumer.group_metadata()._replace(generation_id=77)
        producer.begin_transaction()
        with pytest.raises(CommitFailed):
            producer.send_offsets_to_transaction({("in", 0): 1}, stale)
        producer.abort_transaction()
    assert broker.committed("g") == {("in", 0): 10}
    assert read(broker) == [b"%d" % number for number in range(10)]


def test_offsets_of_a_group_without_members(broker: Broker) -> None:
    with producer_of(broker) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({("in", 0): 42}, "alone")
        producer.begin_transaction()
        producer.send_offsets_to_transaction({("in", 0): 43}, "alone")
        producer.abort_transaction()
    assert broker.committed("alone") == {("in", 0): 42}


def test_the_latest_producer_of_an_id_wins(broker: Broker) -> None:
    with producer_of(broker) as first, producer_of(broker) as second:
        first.init_transactions()
        first.begin_transaction()
        first.send("t", b"first").result(60)
        second.init_transactions()
        with second.transaction():
            second.send("t", b"second")
        with pytest.raises(ProducerFenced, match="'tx'"):
            first.commit_transaction()
        with pytest.raises(ProducerFenced):
            first.send("t", b"never")
        with pytest.raises(ProducerFenced):
            first.begin_transaction()
    assert read(broker) == [b"second"]


def test_close_aborts_what_is_open(broker: Broker) -> None:
    producer = producer_of(broker)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"lost").result(60)
    producer.close()
    assert read(broker) == []
    assert len(broker.records("t")) == 1


def test_records_outside_of_a_transaction_are_refused(broker: Broker) -> None:
    with producer_of(broker) as producer:
        with pytest.raises(UsageError, match=r"init_transactions\(\)"):
            producer.send("t", b"early")
        producer.init_transactions()
        with pytest.raises(UsageError, match=r"begin_transaction\(\)"):
            producer.send("t", b"early")
    with (
        barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as plain,
        pytest.raises(UsageError, match="transactional_id"),
    ):
        plain.begin_transaction()


def test_without_a_broker_a_call_ends_in_time_and_can_be_taken_up_again() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with producer_of(broker) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"kept").result(60)
            broker.stop()
            with pytest.raises(OperationTimedOut, match=r"commit_transaction did not end within 0\.3 s"):
                producer.commit_transaction(0.3)
            broker.restart()
            producer.commit_transaction(20)
            assert read(broker) == [b"kept"]


def test_a_prepared_transaction_outlives_its_producer() -> None:
    with Broker(settings={"transaction.two.phase.commit.enable": "true"}) as broker:
        broker.create_topic("t")
        two_phase = {"transaction_two_phase_commit_enable": True}
        for committed in (True, False):
            with producer_of(broker, **two_phase) as first:
                first.init_transactions()
                first.begin_transaction()
                first.send("t", b"%d" % committed)
                prepared = first.prepare_transaction()
                with pytest.raises(UsageError, match="prepared"):
                    first.send("t", b"too late")
            with producer_of(broker, **two_phase) as second:
                second.init_transactions(keep_prepared=True)
                with pytest.raises(UsageError, match=r"complete_transaction\(\)"):
                    second.begin_transaction()
                second.complete_transaction(prepared if committed else prepared._replace(producer_id=1))
                second.complete_transaction(prepared)
                with second.transaction():
                    second.send("t", b"after")
        assert read(broker) == [b"1", b"after", b"after"]


@pytest.mark.parametrize("two_phase", [False, True])
def test_released_transactions_are_ended_by_who_was_told(two_phase: bool) -> None:
    """One producer writes a transaction under each of several ids, one after the other, and ends none of them."""
    with Broker(settings={"transaction.two.phase.commit.enable": "true"}) as broker:
        broker.create_topic("t", partitions=2)
        released = {}
        with producer_of(broker, transaction_two_phase_commit_enable=two_phase) as producer:
            for name in ("a", "b", "c"):
                producer.init_transactions(transactional_id=name)
                producer.begin_transaction()
                producer.send_many("t", [f"{name}{number}".encode() for number in range(2)], partition=0)
                released[name] = producer.release_transaction()
                with pytest.raises(UsageError, match=r"init_transactions\(\)"):
                    producer.send("t", b"too late")
            producer.init_transactions(transactional_id="d")
            producer.begin_transaction()
            assert producer.release_transaction() is None
        with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            ids = [listing.transactional_id for listing in admin.list_transactions(states=["Ongoing"])]
            assert ids == ["a", "b", "c"]
            for name, transaction in released.items():
                assert transaction is not None
                for _ in range(2):
                    admin.end_transaction(name, **transaction._asdict(), committed=name != "b")
        assert read(broker) == [b"a0", b"a1", b"c0", b"c1"]


def test_a_released_transaction_is_aborted_by_the_next_producer_of_its_id(broker: Broker) -> None:
    with producer_of(broker, "one") as producer:
        for value in (b"lost", b"kept"):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", value)
            released = producer.release_transaction()
        with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert released is not None
            admin.end_transaction("one", **released._asdict(), committed=True)
        with pytest.raises(UsageError, match="transactional_id='' will not do"):
            producer.init_transactions(transactional_id="")
    assert read(broker) == [b"kept"]


def test_a_producer_elsewhere_continues_unless_another_has_taken_over(broker: Broker) -> None:
    def who(producer: barnabas.Producer) -> Any:
        found = producer.metrics()
        return PreparedTransaction(found["producer_id"], found["producer_epoch"])

    with producer_of(broker) as first:
        first.init_transactions()
        mine = who(first)
    with producer_of(broker) as second:
        second.init_transactions(continuing=mine)
        with second.transaction():
            second.send("t", b"kept")
        theirs = who(second)
    with producer_of(broker) as other:
        other.init_transactions()
        with producer_of(broker) as late, pytest.raises(ProducerFenced):
            late.init_transactions(continuing=theirs)
        with other.transaction():
            other.send("t", b"kept, too")
    assert read(broker) == [b"kept", b"kept, too"]
