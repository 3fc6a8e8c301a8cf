"""Which entries share a request, how many requests are in flight, and how each entry gets its one answer."""

import logging
from typing import Any, NamedTuple

import pytest

from barnabas.broker.cluster import peer_batches
from barnabas.broker.cluster.peer_batches import PeerBatches
from barnabas.broker.peers.peer_connections import Role
from barnabas.broker.process.failure_log import FailureLog
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BrokerNotAvailable, ClientClosed, KafkaError
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from broker.cluster.fake_peers import FakePeers
from coordinator.group_rig import VirtualScheduler


class Name(NamedTuple):
    key: str
    items: int = 1
    label: str = ""


class Rig:
    """Entries are group ids, the request is DescribeGroups."""

    def __init__(self, in_flight_max: int = 1) -> None:
        self.scheduler = VirtualScheduler()
        self.peers: FakePeers | None = FakePeers()
        self.ends: list[tuple[int, str, Any]] = []
        self.broken = ""
        self.batches: PeerBatches[Name, str] = PeerBatches(
            lambda: self.peers,
            lambda callback: self.scheduler.call_later(0.0, callback),
            FailureLog(logging.getLogger("test"), SYSTEM_CLOCK),
            request=lambda names: DescribeGroupsRequest(groups=[name.key for name in names]),
            results=lambda response: f"throttled {response.throttle_time_ms}",
            answered=self._on_end,
            failed=self._on_end,
            in_flight_max=in_flight_max,
            timeout_s=7.0,
            at_least=4,
        )

    def _on_end(self, node_id: int, name: Name, result: Any) -> None:
        if name.key == self.broken:
            raise RuntimeError("a bug")
        self.ends.append((node_id, name.label or name.key, result))

    def add(self, *keys: str, node_id: int = 2) -> None:
        for key in keys:
            assert self.batches.add(node_id, Name(key))

    def turn(self) -> None:
        self.scheduler.advance(0.0)

    @property
    def sent(self) -> list[list[str]]:
        assert self.peers is not None
        return [list(sent.request.groups) for sent in self.peers.sent]

    def answer(self, number: int = 1) -> None:
        assert self.peers is not None
        self.peers.take().answer(DescribeGroupsResponse(throttle_time_ms=number))
        self.turn()


def test_the_entries_of_one_turn_share_a_request() -> None:
    rig = Rig()
    rig.add("a", "b")
    rig.add("c", node_id=3)
    assert rig.sent == []
    rig.turn()
    assert rig.sent == [["a", "b"], ["c"]]
    assert rig.peers is not None
    first = rig.peers.sent[0]
    assert (first.node_id, first.role, first.asked.timeout_s, first.asked.at_least) == (2, Role.TRANSACTION, 7.0, 4)
    rig.answer(5)
    assert rig.ends == [(2, "a", "throttled 5"), (2, "b", "throttled 5")]


@pytest.mark.parametrize("in_flight", [1, 3])
def test_further_entries_wait_while_enough_requests_are_in_flight(in_flight: int) -> None:
    rig = Rig(in_flight)
    for number in range(in_flight):
        rig.add(str(number))
        rig.turn()
    rig.add("x", "y")
    rig.turn()
    rig.add("z", node_id=3)
    rig.turn()
    assert rig.sent == [*([str(number)] for number in range(in_flight)), ["z"]]
    rig.answer()
    assert rig.sent[-1] == ["x", "y"]
    assert len(rig.sent) == in_flight + 1


def test_entries_of_one_key_go_one_after_the_other() -> None:
    rig = Rig()
    for label in ("first", "second"):
        rig.batches.add(2, Name("a", label=label))
    rig.add("b")
    rig.turn()
    assert rig.sent == [["a", "b"]]
    rig.answer(1)
    assert rig.sent == [["a"]]
    rig.answer(2)
    assert rig.ends == [(2, "first", "throttled 1"), (2, "b", "throttled 1"), (2, "second", "throttled 2")]


def test_a_request_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_batches, "ENTRIES_MAX", 3)
    monkeypatch.setattr(peer_batches, "ITEMS_MAX", 10)
    rig = Rig()
    for key, items in (("a", 50), ("b", 6), ("c", 4), ("d", 1), ("e", 1), ("f", 1), ("g", 1)):
        rig.batches.add(2, Name(key, items))
    rig.turn()
    requests = []
    while rig.sent:
        requests += rig.sent
        rig.answer()
    assert requests == [["a"], ["b", "c"], ["d", "e", "f"], ["g"]]
    assert [name for _, name, _ in rig.ends] == list("abcdefg")


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_batches, "QUEUED_MAX", 2)
    rig = Rig()
    rig.add("a", "b")
    assert not rig.batches.add(2, Name("c"))
    rig.add("c", node_id=3)
    rig.turn()
    rig.add("d", "e")
    assert not rig.batches.add(2, Name("f"))


def test_a_failed_request_fails_its_entries_and_the_next_one_follows() -> None:
    rig = Rig()
    rig.add("a", "b")
    rig.turn()
    rig.add("c")
    assert rig.peers is not None
    error = BrokerNotAvailable("gone")
    rig.peers.take().fail(error)
    assert rig.ends == [(2, "a", error), (2, "b", error)]
    rig.turn()
    assert rig.sent == [["c"]]


def test_requests_that_fail_at_once_end_the_queue() -> None:
    rig = Rig()
    assert rig.peers is not None
    rig.peers.refusal = BrokerNotAvailable("not registered")
    rig.add("a", "b")
    rig.turn()
    assert [name for _, name, _ in rig.ends] == ["a", "b"]
    assert rig.scheduler.pending() == 0


def test_without_peers_entries_fail() -> None:
    rig = Rig()
    rig.peers = None
    rig.add("a")
    rig.turn()
    ((_, _, error),) = rig.ends
    assert isinstance(error, ClientClosed)


class TestADroppedBroker:
    def test_all_of_its_entries_fail_and_late_answers_count_no_more(self) -> None:
        rig = Rig(in_flight_max=2)
        rig.add("a")
        rig.turn()
        rig.add("b")
        rig.turn()
        rig.add("c", node_id=3)
        rig.add("d")
        error = BrokerNotAvailable("fenced")
        rig.batches.drop(lambda node_id: node_id == 2, error)
        assert rig.ends == [(2, "a", error), (2, "b", error), (2, "d", error)]
        rig.turn()
        assert rig.sent == [["a"], ["b"], ["c"]]
        rig.answer()
        rig.answer()
        assert len(rig.ends) == 3
        rig.answer(8)
        assert rig.ends[3:] == [(3, "c", "throttled 8")]

    def test_it_is_asked_again_when_it_is_back(self) -> None:
        rig = Rig()
        rig.add("a")
        rig.turn()
        rig.add("unsent", node_id=3)
        rig.batches.drop(lambda _: True, BrokerNotAvailable("fenced"))
        rig.add("b")
        rig.turn()
        assert rig.sent == [["a"], ["b"]]
        rig.answer(1)
        rig.answer(2)
        assert rig.ends[2:] == [(2, "b", "throttled 2")]


@pytest.mark.parametrize("error", [None, BrokerNotAvailable("gone")])
def test_a_bug_with_one_answer_leaves_the_others_theirs(
    error: KafkaError | None, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    rig.broken = "b"
    rig.add("a", "b", "c")
    rig.turn()
    assert rig.peers is not None
    if error is None:
        rig.answer()
    else:
        rig.peers.take().fail(error)
    assert [name for _, name, _ in rig.ends] == ["a", "c"]
    assert "a bug" in caplog.text
