"""The state of a cluster, gathered from its brokers by public requests."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from barnabas import Admin
from barnabas.cli.cluster.reassignment.throttle import Rates, throttle_rates, throttled_followers
from barnabas.cli.cluster.under_replicated import min_in_sync, under_replicated_rows, with_missing_replicas
from barnabas.cli.framework.replication import eligible_leaders
from barnabas.cli.framework.resources import some
from barnabas.client.admin.log_dirs import LogDir
from barnabas.client.admin.reassignments import PartitionReassignment
from barnabas.client.diagnosis.checks import probe_for
from barnabas.connection.cluster import Broker, TopicView
from barnabas.errors import BarnabasError, ItemsFailed, error_for
from barnabas.metadata.refused_broker import RefusedBroker
from barnabas.metadata.unreached_peer import UnreachedPeer
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.types import TopicPartition

__all__ = ["Answer", "ClusterState", "cluster_state"]

T = TypeVar("T")
Row = TypeVar("Row", UnreachedPeer, RefusedBroker)

ZOOKEEPER: Final = "zookeeper.connect"
PEERS_SHARE: Final = 0.5
"""The part of the time for a request in which a broker waits for the answers of others."""


class Answer(NamedTuple):
    """The time in which something answered, or the error that came instead."""

    elapsed_ms: float
    error: str = ""


class ClusterState(NamedTuple):
    """A cluster at one moment. What the brokers do not tell is empty."""

    brokers: Mapping[int, Broker]
    """All registered brokers."""
    fenced: frozenset[int] = frozenset()
    controller_id: int = -1
    controller: Answer = Answer(0)
    """To a request that only the controller serves."""
    topics: tuple[TopicView, ...] = ()
    under_replicated: tuple[Mapping[str, Any], ...] = ()
    """Rows of `under_replicated_rows`."""
    reassignments: Mapping[TopicPartition, PartitionReassignment] = {}
    directories: Mapping[int, list[LogDir]] = {}
    """The log directories of the live brokers that answered."""
    rates: Mapping[int, Rates] = {}
    throttled: Mapping[str, frozenset[str]] = {}
    """`PARTITION:BROKER` of the replicas that are throttled as followers, or `*`, by topic."""
    registry: Mapping[int, Answer] = {}
    """To a request for which a broker reads the registry."""
    registry_losses: Mapping[int, str] = {}
    """The reason for which brokers that start would not find the registry, by the broker that told it."""
    registry_space: Mapping[int, tuple[int, int]] = {}
    """The free bytes and the size of the disk under the registry, by the broker that told them."""
    unreached: Mapping[int, tuple[UnreachedPeer, ...]] = {}
    """The other brokers that do not answer a broker, by the broker that was asked and told it."""
    refused: Mapping[int, tuple[RefusedBroker, ...]] = {}
    """The brokers that do not belong to the cluster, and were refused lately, by the broker that told it."""
    releases: Mapping[int, str] = {}
    zookeeper: str = ""
    """The addresses of the registry, if it is a ZooKeeper."""
    unanswered: Mapping[str, str] = {}
    """The errors that came instead of what is asked about under-replicated partitions, by what was asked."""

    @property
    def live(self) -> list[int]:
        return sorted(self.brokers.keys() - self.fenced)


class _Told(NamedTuple):
    """The answers of the brokers about themselves: fields of ClusterState, in the order there."""

    registry: dict[int, Answer]
    registry_losses: dict[int, str]
    registry_space: dict[int, tuple[int, int]]
    unreached: dict[int, tuple[UnreachedPeer, ...]]
    refused: dict[int, tuple[RefusedBroker, ...]]
    releases: dict[int, str]


def cluster_state(admin: Admin, settings: Mapping[str, object], *, timeout_s: float) -> ClusterState:
    """Returns the state of the cluster. Raises KafkaError, ClientError if not even its topics can be listed."""
    described = admin.describe_cluster(include_fenced=True)
    live = {node_id: broker for node_id, broker in described.brokers.items() if node_id not in described.fenced}
    topics = tuple(admin.list_topics(internal=True))
    reassignments, controller = _answer(admin.list_partition_reassignments)
    behind = with_missing_replicas(topics)
    names = [view.name for view in behind]
    leaders, leaders_asked = _answer(lambda: eligible_leaders(admin, behind))
    minimums, _ = _answer(lambda: min_in_sync(admin, names))
    rates, rates_asked = _answer(lambda: throttle_rates(admin) if behind else {})
    throttled, throttled_asked = _answer(lambda: throttled_followers(admin, names))
    asked = {
        "eligible leaders": leaders_asked,
        "throttles of brokers": rates_asked,
        "throttles of topics": throttled_asked,
    }
    unanswered = {what: answer.error for what, answer in asked.items() if answer.error}
    if untold := sorted(set(names).difference(minimums or ())):
        unanswered["min.insync.replicas"] = f"no answer came about {some(untold)}"
    return ClusterState(
        described.brokers,
        described.fenced,
        described.controller_id,
        controller,
        topics,
        tuple(under_replicated_rows(behind, leaders or {}, minimums or {}, reassignments or {})),
        reassignments or {},
        _directories(admin, list(live)),
        rates or {},
        throttled or {},
        *_ask_each(live, settings, timeout_s),
        _zookeeper(admin, min(live, default=-1)),
        unanswered,
    )


def _answer(call: Callable[[], T]) -> tuple[T | None, Answer]:
    """Returns the result, None after an error, and the time that it took."""
    result, error, began = None, "", time.perf_counter()
    try:
        result = call()
    except BarnabasError as problem:
        error = str(problem)
    return result, Answer((time.perf_counter() - began) * 1000, error)


def _directories(admin: Admin, node_ids: Sequence[int]) -> Mapping[int, list[LogDir]]:
    try:
        return admin.describe_log_dirs(node_ids)
    except ItemsFailed as error:
        return error.succeeded
    except BarnabasError:
        return {}


def _ask_each(brokers: Mapping[int, Broker], settings: Mapping[str, object], timeout_s: float) -> _Told:
    """Asks brokers for the last row of the registry's history, whether it is lost and its disk has room, for the
    brokers that they do not reach or have refused, and for their releases. Kafka's do not know these wishes, and are
    left out."""
    told = _Told({}, {}, {}, {}, {}, {})
    wish = DescribeClusterRequest(unreached_peers_wait_ms=int(timeout_s * PEERS_SHARE * 1000))
    for node_id, broker in brokers.items():
        with probe_for(broker.host, broker.port, settings, timeout_s) as client:
            _, connected = _answer(client.versions)
            if connected.error:
                continue  # the check of its address says so
            response, answer = _answer(lambda: client.send(DescribeClusterRequest(leader_changes_max=1)))
            peers, _ = _answer(lambda: client.send(wish))
        if response is not None and response.error_code:
            answer = answer._replace(error=str(error_for(response.error_code, response.error_message or "")))
        if answer.error or (response is not None and response.leader_changes is not None):
            told.registry[node_id] = answer
        if response is not None and response.release:
            told.releases[node_id] = response.release
        if response is not None and response.registry_loss:
            told.registry_losses[node_id] = response.registry_loss
        if response is not None and response.registry_total_bytes:
            told.registry_space[node_id] = (response.registry_usable_bytes, response.registry_total_bytes)
        if peers is not None and peers.unreached_peers is not None:
            told.unreached[node_id] = _rows(UnreachedPeer, peers.unreached_peers)
            told.refused[node_id] = _rows(RefusedBroker, peers.refused_brokers or b"[]")
    return told


def _rows(kind: type[Row], text: str | bytes) -> tuple[Row, ...]:
    return tuple(kind(**{name: row[name] for name in kind._fields}) for row in json.loads(text))


def _zookeeper(admin: Admin, node_id: int) -> str:
    found, _ = _answer(lambda: admin.describe_configs([("broker", str(node_id))], keys=[ZOOKEEPER]))
    return next((entries[ZOOKEEPER].value or "" for entries in (found or {}).values() if ZOOKEEPER in entries), "")
