"""A network client of a simulated cluster: bootstrap addresses, outages, the broker that a request goes to."""

from typing import Any

import pytest

from barnabas.connection.network_client import ANY, CONTROLLER, Node
from barnabas.connection.retry import send_with_retries
from barnabas.errors import BootstrapResolutionFailed, BrokerUnreachable, ClientClosed, RebootstrapRequired, WrongBroker
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.types import BrokerId
from connection.rig import groups, sent
from simulation.cluster import SILENT, SingleClientCluster

# --- no broker is reachable ------------------------------------------------------------------------------------------


class Told:
    """A cluster whose client tells the user, with the times and texts of that."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.texts: list[str] = []
        self.cluster = SingleClientCluster(on_unreachable=self._hear)
        groups(self.cluster)

    def _hear(self, error: BrokerUnreachable) -> None:
        self.at.append(self.cluster.now)
        self.texts.append(str(error))

    def run(self, seconds: float) -> None:
        self.cluster.run(self._call_back, seconds=seconds)

    def _call_back(self) -> bool:
        while self.cluster.network_client.completions:
            self.cluster.network_client.completions.popleft()()
        return False


def test_an_outage_is_told_within_seconds_and_once() -> None:
    told = Told()
    cluster = told.cluster
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    for outages in (1, 2):
        begin = cluster.now
        cluster.stop(1)
        told.run(seconds=300)
        assert len(told.at) == outages
        assert told.at[-1] - begin < 5
        assert "no broker reachable: " in told.texts[-1]
        assert "boot:9092: tcp: connection refused" in told.texts[-1]
        cluster.up.add(1)
        cluster.result(send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=60))
    told.run(seconds=300)
    assert len(told.at) == 2


def test_an_outage_of_a_second_is_not_told() -> None:
    told = Told()
    cluster = told.cluster
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    cluster.stop(1)
    told.run(seconds=1)
    cluster.up.add(1)
    told.run(seconds=300)
    assert told.texts == []


def test_a_broker_that_accepts_and_does_not_answer_is_told_with_the_stage() -> None:
    told = Told()
    told.cluster.handlers[18] = lambda received: SILENT
    sent(told.cluster, ListGroupsRequest(), ANY)
    told.run(seconds=5)
    assert told.texts == ["no broker reachable: boot:9092: version: no answer yet"]


# --- connections ------------------------------------------------------------------------------------------------------


def test_wrong_addresses_are_tried_for_as_long_as_is_allowed() -> None:
    cluster = SingleClientCluster(bootstrap_timeout_s=0)
    cluster.up.clear()
    for _ in range(2):  # a later request tries again
        before = cluster.now
        promises = [sent(cluster, ListGroupsRequest(), ANY), cluster.network_client.topic("t", 60)]
        for promise in promises:
            with pytest.raises(BrokerUnreachable, match=r"boot:9092: tcp: connection refused \(is it run") as raised:
                cluster.result(promise)
            assert raised.value.attempts[0].stage == "tcp"
        assert cluster.now < before + 1
    cluster = SingleClientCluster(bootstrap_timeout_s=7)
    cluster.up.clear()
    with pytest.raises(BrokerUnreachable):
        cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    assert 1006.9 < cluster.now < 1009


def test_names_that_do_not_resolve_are_tried_for_as_long_as_is_allowed() -> None:
    cluster = SingleClientCluster(bootstrap_resolve_timeout_s=7)
    groups(cluster)
    cluster.up.clear()  # nothing of the simulation resolves then
    promises = [sent(cluster, ListGroupsRequest(), ANY), cluster.network_client.topic("t", 60)]
    for promise in promises:
        with pytest.raises(BootstrapResolutionFailed, match=r"within 7 s \(bootstrap.resolve.timeout.ms\): no broker"):
            cluster.result(promise)
    assert 1006.9 < cluster.now < 1009
    later = cluster.now
    with pytest.raises(BootstrapResolutionFailed):
        cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    assert cluster.now < later + 1
    cluster.up.add(1)
    cluster.run(seconds=5)
    assert cluster.result(sent(cluster, ListGroupsRequest(), ANY)) == ListGroupsResponse()
    cluster.stop(1)
    promise = sent(cluster, ListGroupsRequest(), ANY)
    cluster.run(seconds=20)
    assert not promise.done  # what has once resolved is waited for


@pytest.mark.parametrize(
    ("settings", "is_checked"), [({}, True), ({"cluster_check": False}, False), ({"rebootstrap": False}, False)]
)
def test_a_client_leaves_an_address_that_leads_to_another_broker(settings: Any, is_checked: bool) -> None:
    cluster = SingleClientCluster(nodes=2, **settings)
    groups(cluster)
    asked: list[tuple[str | None, int]] = []
    answers, wrong = cluster.handlers[18], [2]

    def versions(received: Any) -> Any:
        expected = received.request.cluster_id, received.request.node_id
        asked.append(expected)
        if expected == ("sim", 2) and wrong:
            return ApiVersionsResponse(error_code=RebootstrapRequired.code)
        return answers(received)

    cluster.handlers[18] = versions
    cluster.result(cluster.network_client.refresh_metadata())
    assert asked == [(None, -1)]
    promise = sent(cluster, ListGroupsRequest(), Node(BrokerId(2)))
    if not is_checked:
        assert cluster.result(promise) == ListGroupsResponse()
        assert set(asked) == {(None, -1)}
        return
    cluster.connected.clear()
    with pytest.raises(WrongBroker, match="n2:9092: version: this is not broker 2 of cluster sim"):
        cluster.result(promise)
    assert cluster.run(lambda: "boot" in cluster.connected, seconds=5)
    wrong.clear()
    promise = send_with_retries(cluster.network_client, ListGroupsRequest(), Node(BrokerId(2)), timeout_s=60)
    assert cluster.result(promise) == ListGroupsResponse()


def test_brokers_before_4_4_are_asked_once() -> None:
    cluster = SingleClientCluster(nodes=2)
    groups(cluster)
    cluster.versions[18] = (0, 4)
    cluster.result(cluster.network_client.refresh_metadata())
    assert cluster.result(sent(cluster, ListGroupsRequest(), Node(BrokerId(2)))) == ListGroupsResponse()
    assert [received.version for received in cluster.requests if received.api_key == 18] == [4, 4]


def test_a_broker_that_was_met_is_waited_for() -> None:
    cluster = SingleClientCluster(bootstrap_timeout_s=0)
    groups(cluster)
    assert cluster.result(sent(cluster, ListGroupsRequest(), ANY)) == ListGroupsResponse()
    cluster.stop(1)
    promise = send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=60)
    cluster.run(seconds=20)
    assert not promise.done
    cluster.up.add(1)
    assert cluster.result(promise) == ListGroupsResponse()


def test_requests_wait_for_a_broker() -> None:
    cluster = SingleClientCluster()
    groups(cluster)
    cluster.up.clear()
    promise = send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=60)
    cluster.run(seconds=20)
    assert not promise.done
    cluster.up.add(1)
    assert cluster.result(promise) == ListGroupsResponse()


def test_close_fails_what_is_in_flight() -> None:
    cluster = SingleClientCluster()
    promise = sent(cluster, ListGroupsRequest(), ANY)
    topic = cluster.network_client.topic("t", 60)
    cluster.network_client.close()
    for waiting in (promise, topic, sent(cluster, ListGroupsRequest(), ANY)):
        with pytest.raises(ClientClosed):
            waiting.result()


# --- metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rebootstrap", [True, False])
def test_brokers_that_give_no_metadata_are_left_for_the_first_addresses(rebootstrap: bool) -> None:
    cluster = SingleClientCluster(nodes=2, rebootstrap=rebootstrap, rebootstrap_trigger_s=60)
    refreshed = cluster.network_client.refresh_metadata()
    assert cluster.run(lambda: refreshed.done)
    answers, cluster.handlers[3] = cluster.handlers[3], lambda received: SILENT
    cluster.connected.clear()
    refreshed = cluster.network_client.refresh_metadata()
    began = cluster.now
    assert cluster.run(lambda: "boot" in cluster.connected, seconds=200) is rebootstrap
    if rebootstrap:
        assert 60 <= cluster.now - began < 60 + 31
    cluster.handlers[3] = answers
    refreshed = cluster.network_client.refresh_metadata()
    assert cluster.run(lambda: refreshed.done and refreshed.error is None)


def test_another_broker_is_asked_when_one_dies() -> None:
    cluster = SingleClientCluster(nodes=3)
    groups(cluster)
    cluster.topics["t"] = {0: 1}
    cluster.result(cluster.network_client.topic("t", 5))
    cluster.stop(1)
    assert (
        cluster.result(send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=30))
        == ListGroupsResponse()
    )
    assert cluster.requests[-1].node_id != 1


# --- the controller ---------------------------------------------------------------------------------------------------


def test_the_controller_is_asked() -> None:
    cluster = SingleClientCluster(nodes=3)
    groups(cluster)
    cluster.result(cluster.network_client.refresh_metadata())
    cluster.result(sent(cluster, ListGroupsRequest(), CONTROLLER))
    assert cluster.requests[-1].node_id == 1
