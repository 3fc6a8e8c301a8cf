"""Brokers as members of a cluster, each on a thread of its own: joining, forwarding, fencing, leaving, coming back."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.cluster import member as member_module
from barnabas.broker.cluster import metadata_pushes
from barnabas.broker.cluster.controller_duties import ControllerDuties
from barnabas.broker.scheduler import Scheduler
from barnabas.broker.server import Broker as Server
from barnabas.config.endpoints import Endpoint
from barnabas.controller.controller import Controller
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import BrokerImage
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import RegistryUnavailable
from barnabas.testing import Broker
from barnabas.types import BrokerId
from broker.cluster.clusters import SOON_S, Cluster, active, create_request, wait_for
from broker.peers.conftest import run_on
from broker.sent_requests import append
from broker.wire import Wire, on_loop, server_of

Make = Callable[..., Cluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Cluster] = []

    def make(*node_ids: int, **settings: object) -> Cluster:
        made.append(Cluster(tmp_path, node_ids or (1, 2), **settings))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make: Make) -> Cluster:
    return make()


# --- joining ---------------------------------------------------------------------------------------------------------


def test_all_members_know_each_other(make: Make) -> None:
    cluster = make(1, 2, 3)
    wait_for(lambda: all(active(cluster.image(node_id)) == {1, 2, 3} for node_id in (1, 2, 3)))
    images = [cluster.image(node_id) for node_id in (1, 2, 3)]
    assert {image.cluster_id for image in images} == {images[0].cluster_id}
    assert {image.controller_id for image in images} == {1}
    assert [cluster.on(node_id, lambda n=node_id: cluster.member(n).is_controller) for node_id in (1, 2, 3)] == [  # type: ignore[misc]
        True,
        False,
        False,
    ]
    peers = {broker.peer_endpoint for broker in images[0].brokers.values()}
    assert len(peers) == 3
    assert None not in peers


@pytest.mark.parametrize("failures", [[], [RegistryUnavailable("database is locked")], [OSError(24, "too many files")]])
def test_a_broker_alone_meets_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: list[Exception]
) -> None:
    """One that was started without a shared registry opens its listener when another broker registers."""
    left = list(failures)
    set_peer_endpoint = Controller.set_peer_endpoint

    def set_or_fail(controller: Controller, endpoint: Endpoint) -> None:
        if left:
            raise left.pop()
        set_peer_endpoint(controller, endpoint)

    monkeypatch.setattr(Controller, "set_peer_endpoint", set_or_fail)
    with Broker(data_dir=tmp_path / "1", settings={"node.id": 1, "broker.heartbeat.interval.ms": 50}) as one:
        assert server_of(one).cluster is None
        settings = {"node.id": 2, "registry.file": str(tmp_path / "1" / "registry.db")}
        with Broker(data_dir=tmp_path / "2", settings=settings) as two:
            joined = server_of(two).cluster
            assert joined is not None
            wait_for(lambda: on_loop(two, lambda: joined.joined().done()), "the second broker")
            with Wire(two) as wire:
                assert wire.ask(create_request("t", (1, 2)), 7).topics[0].error_code == 0
            wait_for(lambda: "t" in on_loop(one, lambda: server_of(one).image.topics))


def test_a_broker_that_cannot_meet_others_tries_no_more_often_for_every_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[None] = []

    async def meet(server: Server) -> None:
        begun.append(None)

    monkeypatch.setattr(Server, "_meet_others", meet)
    with Broker(data_dir=tmp_path, settings={"node.id": 1}) as one:
        server = server_of(one)
        for _ in range(3):
            delta = MetadataDelta(server.image)
            delta.put_broker(BrokerImage(BrokerId(2), 5, ()))
            on_loop(one, lambda delta=delta: server.metadata_changed(delta.apply(server.image.version + 1)))  # type: ignore[misc]
        on_loop(one, lambda: None)
    assert len(begun) == 1


def test_a_broker_whose_registration_was_removed_ends(cluster: Cluster) -> None:
    """It was cut off when an administrator did that. Its next start registers again."""
    image = cluster.image(2)
    delta = MetadataDelta(image)
    delta.remove_broker(BrokerId(2))
    server = server_of(cluster.brokers[2])
    cluster.on(2, lambda: server.metadata_changed(delta.apply(image.version + 1)))
    assert server.ended.done()
    assert server.image is image


def test_a_registry_that_is_removed_while_brokers_run_is_told_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(member_module, "DIRECTORY_CHECK_MS", 5)
    cluster = make(1)
    path, moved = tmp_path / "registry.db", tmp_path / "moved.db"
    line = f"the registry {path} was removed or replaced: put the right one back, or stop all brokers"
    checked, loss = threading.Event(), EmbeddedRegistry.loss

    def loss_noted(registry: EmbeddedRegistry) -> str:
        checked.set()
        return loss(registry)

    monkeypatch.setattr(EmbeddedRegistry, "loss", loss_noted)

    def told() -> str | None:
        with Wire(cluster.brokers[1]) as wire:
            response: DescribeClusterResponse = wire.ask(DescribeClusterRequest(leader_changes_max=1), 2)
        return response.registry_loss

    for losses in (1, 2):
        assert not told()
        path.rename(moved)
        wait_for(lambda: told() == f"{path} was removed or replaced", "word of the loss")
        for _ in range(2):  # of which one has begun since
            checked.clear()
            assert checked.wait(SOON_S)
        assert caplog.text.count(line) == losses
        moved.rename(path)
        wait_for(lambda: not told(), "word that it is back")


# --- requests to any broker ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node_id", [1, 2])
def test_any_broker_changes_metadata_and_all_know_then(make: Make, node_id: int) -> None:
    cluster = make(1, 2, 3)
    with Wire(cluster.brokers[node_id]) as wire:
        assert wire.ask(create_request("t", (3, 1), (2, 3)), 7).topics[0].error_code == 0
        for other in (1, 2, 3):
            assert cluster.partition(other, "t").leader == 3
        setting = AlterableConfig(name="retention.ms", config_operation=0, value="5000")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[setting])
        assert wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
        for other in (1, 2, 3):
            assert cluster.image(other).topic_config("t") == {"retention.ms": "5000"}
        wanted = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert wire.ask(wanted, 6).responses[0].error_code == 0
        for other in (1, 2, 3):
            assert cluster.image(other).topics == {}


@pytest.mark.parametrize("version", [0, 1])
def test_log_levels_are_those_of_the_broker_that_is_asked(
    cluster: Cluster, version: int, request: pytest.FixtureRequest
) -> None:
    logger = logging.getLogger("barnabas.test.levels")
    request.addfinalizer(lambda: logger.setLevel(logging.NOTSET))
    cluster.create("t", (1, 2))
    level = AlterableConfig(name=logger.name, config_operation=0, value="DEBUG")
    setting = AlterableConfig(name="retention.ms", config_operation=0, value="5000")
    wanted = [
        AlterConfigsResource(resource_type=8, resource_name="1", configs=[level]),
        AlterConfigsResource(resource_type=2, resource_name="t", configs=[setting]),
        AlterConfigsResource(resource_type=8, resource_name="2", configs=[level]),
        AlterConfigsResource(resource_type=2, resource_name="nope", configs=[setting]),
    ]
    with Wire(cluster.brokers[2]) as wire:
        responses = wire.ask(IncrementalAlterConfigsRequest(resources=wanted), version).responses
    told = [(r.resource_type, r.resource_name, r.error_code, r.error_message) for r in responses]
    assert told == [
        (8, "1", 42, "Unexpected node id. Expected 2, but received 1"),
        (2, "t", 0, None),
        (8, "2", 0, None),
        (2, "nope", 3, "The topic 'nope' does not exist."),
    ]
    assert logger.level == logging.DEBUG
    assert cluster.image(2).topic_config("t") == {"retention.ms": "5000"}


def test_a_log_level_needs_no_controller(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    logger = logging.getLogger("barnabas.test.levels")
    request.addfinalizer(lambda: logger.setLevel(logging.NOTSET))
    level = AlterableConfig(name=logger.name, config_operation=0, value="DEBUG")
    resource = AlterConfigsResource(resource_type=8, resource_name="2", configs=[level])
    with cluster.stopped(1), Wire(cluster.brokers[2]) as wire:
        assert wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
    assert logger.level == logging.DEBUG


def test_a_topic_is_created_by_its_first_use_on_any_broker(cluster: Cluster) -> None:
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    with Wire(cluster.brokers[2]) as wire:
        (topic,) = wire.ask(wanted, 12).topics
        assert topic.error_code == 0
        assert len(topic.partitions) == 1
        refused = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="a b")]), 12).topics[0]
        assert refused.error_code == 17
        coordinator = wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0]
        assert (coordinator.error_code, coordinator.node_id in (1, 2)) == (0, True)
    assert set(cluster.image(1).topics) == {"t", "__consumer_offsets"}


def test_requests_wait_for_the_next_controller(make: Make) -> None:
    cluster = make(1, 2, 3)
    with Wire(cluster.brokers[3]) as wire:
        with cluster.stopped(1):
            wire.send(create_request("t", (2, 3)), 7)
            wire.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                wire.socket.recv(1)
            wire.socket.settimeout(60)
        assert wire.receive().topics[0].error_code == 0, "the controller was slow, not dead"
        cluster.brokers[1].stop()
        assert wire.ask(create_request("u", (2, 3)), 7).topics[0].error_code == 0
    wait_for(lambda: cluster.image(2).controller_id == cluster.image(3).controller_id != 1)
    assert cluster.partition(2, "u") == cluster.partition(3, "u")


def test_a_controller_that_stood_still_asks_the_registry_for_a_successor(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make(1, 2, broker_session_timeout_ms=2_000, broker_heartbeat_interval_ms=100)
    registry = cluster.server(1).registry
    answers, asked = threading.Event(), threading.Event()
    check = registry.check

    def check_when_it_answers() -> None:
        if not answers.is_set():
            asked.set()
            raise RegistryUnavailable("it does not answer")
        check()

    monkeypatch.setattr(registry, "check", check_when_it_answers)
    monkeypatch.setattr(ControllerDuties, "hears_of_enough", lambda *_: False)
    cluster.member(1).role_may_move = True
    doubts = cluster.member(1).may_be_replaced
    with cluster.stopped(1):
        stood_still = threading.Event()
        assert not stood_still.wait(1.1), "longer than half a session"
    wait_for(asked.is_set)
    asked.clear()
    wait_for(asked.is_set, "another heartbeat")
    assert cluster.on(1, doubts), "its own answer proves nothing"
    answers.set()
    wait_for(lambda: not cluster.on(1, doubts))


def test_a_controller_with_a_registry_file_keeps_its_role_while_it_stands_still(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make(1, 2, broker_session_timeout_ms=2_000, broker_heartbeat_interval_ms=100)

    def check() -> None:
        raise RegistryUnavailable("it does not answer")

    monkeypatch.setattr(cluster.server(1).registry, "check", check)
    monkeypatch.setattr(ControllerDuties, "hears_of_enough", lambda *_: False)
    with cluster.stopped(1):
        stood_still = threading.Event()
        assert not stood_still.wait(1.1), "longer than half a session"
    assert not cluster.on(1, cluster.member(1).may_be_replaced)


def test_a_malformed_request_costs_its_connection(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    for node_id in (1, 2):
        with Wire(cluster.brokers[node_id]) as wire:
            body = b"\0\x13\0\7" + b"\0\0\0\1" + b"\xff\xff\0" + b"\xff" * 9
            wire.socket.sendall(len(body).to_bytes(4, "big") + body)
            assert wire.is_closed()
    with Wire(cluster.brokers[2]) as wire:
        assert wire.ask(create_request("t", (2,)), 7).topics[0].error_code == 0
    assert "Traceback" not in caplog.text


# --- brokers that end ------------------------------------------------------------------------------------------------


def test_others_lead_when_a_broker_has_ended(cluster: Cluster) -> None:
    cluster.create("t", (2, 1), (1, 2))
    wait_for(lambda: set(cluster.partition(1, "t").isr) == {1, 2})
    cluster.brokers[2].stop()
    wait_for(lambda: cluster.fenced(1) == {2})
    wait_for(lambda: [cluster.partition(1, "t", number).leader for number in (0, 1)] == [1, 1])
    with Wire(cluster.brokers[1]) as wire:
        assert append(wire, "t") == 0
    cluster.start(2)
    assert cluster.fenced(1) == set()
    wait_for(lambda: set(cluster.partition(1, "t").isr) == {1, 2}, "the copy")


def test_another_broker_becomes_the_controller(make: Make) -> None:
    cluster = make(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    before = cluster.image(2).controller_epoch
    cluster.brokers[1].stop()
    wait_for(lambda: {cluster.image(node_id).controller_id for node_id in (2, 3)} <= {2, 3})
    wait_for(lambda: cluster.partition(2, "t").leader == cluster.partition(3, "t").leader != 1)
    assert cluster.image(2).controller_epoch == cluster.image(3).controller_epoch == before + 1
    cluster.create("u", (2, 3), by=3)
    cluster.start(1)
    wait_for(lambda: cluster.image(1).controller_id == cluster.image(2).controller_id)
    assert cluster.image(1).controller_id in (2, 3), "the role stays where it is"
    cluster.create("v", (1, 2), by=1)


def test_a_controller_that_restarts_gets_the_role_in_a_new_epoch(cluster: Cluster) -> None:
    cluster.brokers[2].stop()
    before = cluster.image(1).controller_epoch
    cluster.brokers[1].stop()
    cluster.start(1)
    image = cluster.image(1)
    assert (image.controller_id, image.controller_epoch, active(image)) == (1, before + 1, {1})
    cluster.create("t", (1,))
    cluster.start(2)
    assert "t" in cluster.image(2).topics


def test_a_silent_broker_is_fenced_and_comes_back(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "CONTROLLER_CHECK_MS", 20)
    cluster = make(1, 2, broker_session_timeout_ms=300, broker_heartbeat_interval_ms=50)
    cluster.create("t", (2, 1))
    wait_for(lambda: set(cluster.partition(1, "t").isr) == {1, 2})
    with cluster.stopped(2):
        wait_for(lambda: cluster.fenced(1) == {2}, "the end of the session")
        assert cluster.partition(1, "t").leader == 1
        with Wire(cluster.brokers[1]) as wire:
            assert append(wire, "t") == 0
    wait_for(lambda: cluster.fenced(1) == set(), "the broker that goes on")
    wait_for(lambda: cluster.image(2).version == cluster.image(1).version)
    assert cluster.partition(2, "t").leader == 1
    wait_for(lambda: set(cluster.partition(1, "t").isr) == {1, 2}, "the copy")


def test_the_controller_does_not_wait_long_for_a_silent_broker(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make(1, 2)
    with cluster.stopped(2):
        cluster.create("t", (1,))
        assert cluster.fenced(1) == set(), "the session goes on"
    wait_for(lambda: "t" in cluster.image(2).topics)


# --- a shutdown in order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaver", [1, 2])
def test_a_broker_that_leaves_leads_nothing_before_its_end(make: Make, leaver: int) -> None:
    cluster = make(1, 2, 3)
    stays = 3 - leaver
    cluster.create("t", (leaver, stays, 3))
    cluster.create("alone", (leaver,))
    wait_for(lambda: set(cluster.partition(3, "t").isr) == {1, 2, 3})
    run_on(cluster.brokers[leaver], cluster.server(leaver).leave_cluster())
    for node_id in (1, 2, 3):
        wait_for(lambda n=node_id: cluster.fenced(n) == {leaver})  # type: ignore[misc]
        assert cluster.partition(node_id, "t").leader == stays
        assert cluster.partition(node_id, "t").isr == (stays, 3)
        assert cluster.partition(node_id, "alone").leader == -1
    with Wire(cluster.brokers[stays]) as wire:
        assert append(wire, "t") == 0
    cluster.brokers[leaver].stop()
    assert cluster.image(3).brokers[leaver].fenced  # type: ignore[index]


@pytest.mark.parametrize("enabled", [True, False])
def test_preferred_leaders_lead_again_by_themselves_where_that_is_set(
    make: Make, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    tasks: list[tuple[int, Callable[[], object]]] = []
    every = Scheduler.every

    def noted(self: Scheduler, interval_ms: int, name: str, task: Callable[[], object], **options: Any) -> None:
        if name == "leader balance":
            tasks.append((interval_ms, task))
        else:
            every(self, interval_ms, name, task, **options)

    balanced = threading.Event()
    monkeypatch.setattr(Scheduler, "every", noted)
    monkeypatch.setattr(Controller, "balance_leaders", lambda controller: balanced.set())
    cluster = make(1, auto_leader_rebalance_enable=enabled, leader_imbalance_check_interval_seconds=7)
    assert [interval_ms for interval_ms, _ in tasks] == ([7000] if enabled else [])
    for _, task in tasks:
        cluster.on(1, task)
        assert balanced.wait(SOON_S)


def test_a_broker_without_controlled_shutdown_leads_until_its_end(make: Make) -> None:
    cluster = make(1, 2, controlled_shutdown_enable=False)
    cluster.create("t", (2, 1))
    run_on(cluster.brokers[2], cluster.server(2).leave_cluster())
    assert cluster.partition(1, "t").leader == 2
    cluster.brokers[2].stop()
    wait_for(lambda: cluster.partition(1, "t").leader == 1)


def test_connections_to_other_brokers_go_by_the_settings(make: Make) -> None:
    cluster = make(
        1,
        request_timeout_ms=4000,
        socket_connection_setup_timeout_ms=2000,
        socket_connection_setup_timeout_max_ms=3000,
        replica_socket_receive_buffer_bytes=8192,
    )
    settings = cluster.member(1).peers.settings
    assert settings.request_timeout_s == 4
    assert (settings.setup_timeout_s, settings.setup_timeout_max_s) == (2, 3)
    assert settings.receive_buffer_bytes == 8192


def test_the_last_broker_leaves_at_once(cluster: Cluster) -> None:
    cluster.create("t", (1,))
    cluster.brokers[2].stop()
    wait_for(lambda: cluster.fenced(1) == {2})
    run_on(cluster.brokers[1], cluster.server(1).leave_cluster())
    assert cluster.partition(1, "t").leader == 1, "nobody else could lead"


def test_a_broker_leaves_without_the_controller_after_a_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "LEAVE_MAX_S", 0.1)
    with cluster.stopped(1):
        run_on(cluster.brokers[2], cluster.server(2).leave_cluster())
        assert cluster.fenced(2) == set()


# --- the image -------------------------------------------------------------------------------------------------------


def test_a_broker_without_the_controller_reads_the_registry(cluster: Cluster) -> None:
    """A change is written, and the controller dies before it could push it."""
    cluster.create("t", (2, 1))
    member = cluster.member(1)
    cluster.on(1, lambda: member.duties and member.duties.pushes.close())
    request = CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)])
    with Wire(cluster.brokers[1]) as wire:
        assert wire.ask(request, 7).topics[0].error_code == 0
    assert set(cluster.image(2).topics) == {"t"}
    cluster.brokers[1].stop()
    wait_for(lambda: cluster.image(2).controller_id == 2)
    assert set(cluster.image(2).topics) == {"t", "u"}


# --- brokers that die ------------------------------------------------------------------------------------------------


def ask_leader(wire: Wire) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    leader: int = wire.ask(request, 12).topics[0].partitions[0].leader_id
    return leader


def ask_coordinator(wire: Wire) -> int:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    coordinator: int = wire.ask(request, 4).coordinators[0].node_id
    return coordinator


@pytest.mark.parametrize(("ask", "topic"), [(ask_leader, "t"), (ask_coordinator, "__consumer_offsets")])
def test_clients_wait_for_the_leader_that_follows_a_dead_broker(
    make: Make, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Wire], int], topic: str
) -> None:
    cluster = make(1, 2, 3)
    cluster.create(topic, (2, 3))
    wait_for(lambda: topic in cluster.image(3).topics)
    dead = cluster.image(3).brokers[2]
    monkeypatch.setattr(member_module, "is_running", lambda process: process != dead.process)
    member = cluster.member(3)
    asked = threading.Event()
    election = member.election
    monkeypatch.setattr(member, "election", lambda: (asked.set(), election())[1])
    with Wire(cluster.brokers[3]) as wire, ThreadPoolExecutor() as client:
        assert ask(wire) == 2
        cluster.on(3, lambda: member.peers.on_peer_lost and member.peers.on_peer_lost(2))
        asked.clear()
        leader = client.submit(ask, wire)
        assert asked.wait(SOON_S)
        assert not leader.done()
        run_on(cluster.brokers[1], fence(cluster, dead))
        assert leader.result(SOON_S) == 3
        assert ask(wire) == 3


@pytest.mark.parametrize(("ask", "topic"), [(ask_leader, "t"), (ask_coordinator, "__consumer_offsets")])
def test_the_controller_names_a_new_leader_when_that_one_knows(
    make: Make, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Wire], int], topic: str
) -> None:
    monkeypatch.setattr(metadata_pushes, "WAIT_MAX_S", SOON_S)
    monkeypatch.setattr(member_module, "ELECTION_MAX_S", SOON_S)
    cluster = make(1, 2, 3)
    cluster.create(topic, (2, 3))
    dead = cluster.image(1).brokers[2]
    with Wire(cluster.brokers[1]) as wire, ThreadPoolExecutor() as client:
        with cluster.stopped(3):
            run_on(cluster.brokers[1], fence(cluster, dead, until_known=False))
            leader = client.submit(ask, wire)
            wait_for(lambda: not cluster.image(1).brokers[2].fenced, "the fenced broker, which comes back at once")
            assert cluster.on(1, cluster.member(1).election) is not None
            assert not leader.done()
        assert leader.result(SOON_S) == 3
        wait_for(lambda: cluster.on(1, cluster.member(1).election) is None)


def test_an_election_lasts_until_all_fencings_are_known_or_the_first_is_a_second_old(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make(1)
    member = cluster.member(1)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        known = [loop.create_future(), loop.create_future()]
        waits = iter(known)
        has_ended = asyncio.Event()

        async def until_known() -> None:
            await next(waits)
            has_ended.set()

        assert member.duties is not None
        monkeypatch.setattr(member.duties.pushes, "known", until_known)
        member._follow_election(has_fenced=True)
        election, ends_at = member.election(), member._timers["election"].when()
        member._follow_election(has_fenced=True)
        assert member._timers["election"].when() == ends_at
        known[1].set_result(None)
        await has_ended.wait()
        assert election is not None
        assert not election.done()
        known[0].set_result(None)
        await asyncio.wait_for(election, SOON_S)
        assert member.election() is None

    run_on(cluster.brokers[1], scenario())


def test_metadata_does_not_wait_for_a_live_broker(make: Make) -> None:
    cluster = make(1, 2, 3)
    cluster.create("t", (2, 3))
    wait_for(lambda: "t" in cluster.image(3).topics)
    member = cluster.member(3)
    cluster.on(3, lambda: member.peers.on_peer_lost and member.peers.on_peer_lost(2))
    assert cluster.on(3, member.election) is None, "a lost connection is no death"


@pytest.mark.parametrize("shown_s", [60.0, 0.0])
def test_clients_are_told_the_address_of_a_broker_that_was_live_a_moment_ago(
    make: Make, monkeypatch: pytest.MonkeyPatch, shown_s: float
) -> None:
    monkeypatch.setattr(member_module, "SHOWN_S", shown_s)
    cluster = make(1, 2, 3, broker_heartbeat_interval_ms=60_000, broker_session_timeout_ms=90_000)
    run_on(cluster.brokers[1], fence(cluster, cluster.image(1).brokers[2]))
    with Wire(cluster.brokers[1]) as wire:
        named = {broker.node_id for broker in wire.ask(MetadataRequest(topics=[]), 12).brokers}
        assert named == ({1, 2, 3} if shown_s else {1, 3})
        assert {broker.broker_id for broker in wire.ask(DescribeClusterRequest(), 1).brokers} == {1, 3}


async def fence(cluster: Cluster, broker: BrokerImage, *, until_known: bool = True) -> None:
    controller = cluster.server(1).controller
    await controller.call(
        lambda controller: controller.fence(broker.node_id, broker.epoch, "of the test"), until_known=until_known
    )


ALL_TAKEN = """
import os, resource, sys
from importlib import import_module
from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.printable import printable
from barnabas.protocol.apis import ApiKey, message_classes
from barnabas.testing import Broker

with Broker(data_dir=sys.argv[1], settings={"registry.file": sys.argv[1] + "/registry.db"}):
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    for api_key in (ApiKey.GIVE_UP_REPLICAS, ApiKey.ALTER_PARTITION, ApiKey.OFFSET_FOR_LEADER_EPOCH):
        message_classes(api_key)
        import_module(HANDLER_MODULES[ApiKey(api_key).name.lower()])
    assert printable("a line\\n") == "a line\\\\n"
    os._exit(0)
"""


def test_brokers_can_ask_each_other_for_help_without_a_descriptor(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", ALL_TAKEN, str(tmp_path)], check=True, timeout=60)
