"""Findings about states of a cluster: the reason, the evidence, the way out."""

from typing import Any
from uuid import UUID

import pytest

from barnabas.cli.cluster.health.disks import most_devices
from barnabas.cli.cluster.health.findings import clock_findings, findings
from barnabas.cli.cluster.health.state import Answer, ClusterState
from barnabas.cli.cluster.reassignment.throttle import Rates
from barnabas.client.admin.log_dirs import LogDir, LogDirReplica
from barnabas.client.admin.reassignments import PartitionReassignment
from barnabas.client.diagnosis.checks import Check
from barnabas.connection.cluster import Broker, PartitionView, TopicView
from barnabas.metadata.refused_broker import RefusedBroker
from barnabas.metadata.unreached_peer import UnreachedPeer
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition

BROKERS = {n: Broker(BrokerId(n), "127.0.0.1", 9091 + n, None) for n in (1, 2, 3)}


def topic(name: str, *partitions: tuple[int, tuple[int, ...], tuple[int, ...]], internal: bool = False) -> TopicView:
    """A topic with partitions of (leader, replicas, ISR)."""
    views = {
        number: PartitionView(number, BrokerId(leader), LeaderEpoch(0), replicas, isr, (), 0)
        for number, (leader, replicas, isr) in enumerate(partitions)
    }
    return TopicView(name, UUID(int=1), internal, 0, views)


def row(
    leader: int, replicas: list[int], isr: list[int], *, accepts: bool = True, elr: list[int] | None = None
) -> dict[str, Any]:
    return {
        "topic": "t",
        "partition": 0,
        "leader": leader,
        "replicas": replicas,
        "isr": isr,
        "elr": elr or [],
        "offline_replicas": [],
        "accepts_acks_all": accepts,
    }


def directory(broker: int, *, size: int | None = 100, error: int = 0, free: int = 90, path: str = "/d") -> LogDir:
    replicas = () if size is None else (LogDirReplica("t", 0, size, 0),)
    return LogDir(BrokerId(broker), path, error, 100_000_000, free * 1_000_000, replicas)


def found(state: ClusterState, name: str) -> list[Check]:
    return [check for check in findings(state) if check.name == name and check.status != "ok"]


def test_a_cluster_in_which_all_is_well_has_no_findings() -> None:
    state = ClusterState(
        BROKERS,
        controller_id=1,
        topics=(topic("t", (1, (1, 2, 3), (1, 2, 3))),),
        directories={n: [directory(n)] for n in BROKERS},
        registry={n: Answer(3.0) for n in BROKERS},
    )
    assert {check.status for check in findings(state)} == {"ok"}


def test_a_damaged_log_is_named_with_its_file() -> None:
    damage = "/d/t-0/00000000000000000013.log: byte 924: Input/output error"
    damaged = directory(2)._replace(replicas=(LogDirReplica("t", 0, 100, 0, damage=damage),))
    directories = {1: [directory(1)], 2: [damaged], 3: [directory(3)]}
    (check,) = found(ClusterState(BROKERS, directories=directories), "directory")
    assert (check.target, check.status) == ("broker 2: t-0", "failed")
    assert check.detail == f"its log is damaged: {damage}"
    assert "seek" in check.hint


@pytest.mark.parametrize("name", ["t", "__consumer_offsets"])
def test_a_log_that_has_vanished_is_named_with_the_way_out_that_it_has(name: str) -> None:
    lost = LogDirReplica(name, 0, 0, 0, damage=f"/d/{name}-0 was missing at a start (offsets 0 to 9)")
    (check,) = found(ClusterState(BROKERS, directories={1: [directory(1)._replace(replicas=(lost,))]}), "directory")[:1]
    assert (check.target, check.status) == (f"broker 1: {name}-0", "failed")
    assert check.detail == f"its records are lost: {lost.damage}"
    assert "put the copy in the place" in check.hint
    assert "barnabas-damaged" in check.hint


def test_a_damaged_log_of_a_coordinator_is_passed_over_by_no_seek() -> None:
    damaged = directory(1)._replace(replicas=(LogDirReplica("__consumer_offsets", 3, 100, 0, damage="byte 924"),))
    (check,) = found(
        ClusterState(BROKERS, directories={1: [damaged], 2: [directory(2)], 3: [directory(3)]}), "directory"
    )
    assert "the partition's directory is moved away while the broker is stopped" in check.hint


def test_a_controller_that_is_missing_silent_or_slow() -> None:
    (missing,) = found(ClusterState(BROKERS), "controller")
    assert (missing.status, missing.detail) == ("failed", "the cluster has no controller")
    (silent,) = found(ClusterState(BROKERS, controller_id=2, controller=Answer(5000, "no answer")), "controller")
    assert (silent.target, silent.detail) == ("broker 2", "does not answer: no answer")
    (slow,) = found(ClusterState(BROKERS, controller_id=2, controller=Answer(1500)), "controller")
    assert (slow.status, slow.elapsed_ms) == ("warning", 1500)


def test_a_registry_that_is_lost_or_slow() -> None:
    state = ClusterState(
        BROKERS, registry={1: Answer(1), 2: Answer(900), 3: Answer(1, "timed out")}, zookeeper="zoo:2181/barnabas"
    )
    slow, lost = found(state, "registry")
    assert (slow.target, slow.status) == ("broker 2", "warning")
    assert slow.detail == "ZooKeeper at zoo:2181/barnabas needs 900 ms to answer"
    assert (lost.target, lost.status) == ("broker 3", "failed")
    assert "echo srvr | nc" in lost.hint


def test_a_registry_whose_file_is_gone() -> None:
    answers = {n: Answer(1) for n in BROKERS}
    state = ClusterState(BROKERS, registry=answers, registry_losses={1: "/r.db was removed", 3: "/r.db was removed"})
    (gone,) = [check for check in findings(state) if check.name == "registry"]
    assert (gone.target, gone.status, gone.detail) == ("broker 1,3", "failed", "/r.db was removed")
    assert "`barnabas cluster recover`" in gone.hint


def test_the_disk_of_the_registry_is_full_or_will_be() -> None:
    answers = {n: Answer(1) for n in BROKERS}
    told = dict.fromkeys(BROKERS, (4_000_000, 100_000_000))
    (low,) = found(ClusterState(BROKERS, registry=answers, registry_space=told), "registry")
    assert (low.target, low.status) == ("the registry", "warning")
    assert low.detail == "4.0 MB of 100.0 MB are free on its disk"
    (full,) = found(
        ClusterState(BROKERS, registry=answers, registry_space={1: (4 << 20, 100 << 20), 2: (0, 100 << 20)}), "registry"
    )
    assert full.status == "failed"
    assert "the reserve lasts" in full.hint
    (well,) = [
        check
        for check in findings(ClusterState(BROKERS, registry=answers, registry_space={1: (50 << 20, 100 << 20)}))
        if check.name == "registry"
    ]
    assert well.status == "ok"


def test_brokers_of_two_releases() -> None:
    state = ClusterState(BROKERS, releases=dict.fromkeys(BROKERS, "0.2.0"))
    (same,) = [check for check in findings(state) if check.name == "release"]
    assert (same.target, same.status, same.detail) == ("broker 1,2,3", "ok", "0.2.0")
    (mixed,) = found(ClusterState(BROKERS, releases={1: "0.1.0", 2: "0.2.0", 3: "0.1.0"}), "release")
    assert (mixed.status, mixed.detail) == ("warning", "0.1.0 on broker 1,3, 0.2.0 on broker 2")
    assert "`barnabas cluster roll`" in mixed.hint


def test_brokers_that_are_not_there() -> None:
    brokers = {**BROKERS, 4: Broker(BrokerId(4), "127.0.0.1", 9095, None)}
    state = ClusterState(brokers, frozenset({2, 3}), topics=(topic("t", (1, (1, 2), (1,)), (1, (1, 9), (1,))),))
    stopped, idle, unknown = found(state, "broker")
    assert (stopped.status, stopped.target) == ("failed", "broker 2")
    assert stopped.hint == (
        "start it, also with an empty directory; or, if it is gone for good:"
        " `barnabas cluster drain 2 --execute`, then `barnabas cluster unregister 2`"
    )
    assert (idle.status, idle.target) == ("warning", "broker 3")
    assert "drain" not in idle.hint
    assert unknown.detail == "is not registered; it has 1 replica"


def test_a_dead_broker_without_which_there_are_too_few_or_no_data() -> None:
    full = topic("t", (2, (1, 2, 3), (2, 3)))
    (stopped,) = found(ClusterState(BROKERS, frozenset({1}), topics=(full,)), "broker")
    assert stopped.hint.endswith(
        "if it is gone for good: add another broker, then `barnabas cluster drain 1 --execute`,"
        " then `barnabas cluster unregister 1`"
    )
    alone = topic("one", (2, (2,), (2,)), (-1, (1,), (1,)), (-1, (1, 2), ()))
    (stopped,) = found(ClusterState(BROKERS, frozenset({1}), topics=(full, alone)), "broker")
    assert stopped.hint == (
        "start it with its data: no live broker has an in-sync replica of one-1, one-2;"
        " if the data are lost for good, its log says at the start how to give them up"
    )


def test_live_brokers_that_others_cannot_reach() -> None:
    refused = UnreachedPeer(2, "BROKERS", "127.0.0.1:7", "tcp", "connection refused")
    silent = UnreachedPeer(1, "BROKERS", "127.0.0.1:8", "", "no answer within 2 s")
    unknown = UnreachedPeer(2, "", "", "", "it is not registered with an address")
    dead = UnreachedPeer(4, "BROKERS", "127.0.0.1:9", "tcp", "connection refused")
    brokers = {**BROKERS, 4: Broker(BrokerId(4), "127.0.0.1", 9095, None)}
    state = ClusterState(brokers, frozenset({4}), unreached={1: (refused, dead), 2: (silent,), 3: (refused, dead)})
    hanging, astray = found(state, "peers")
    assert (astray.status, astray.target) == ("failed", "broker 1,3")
    assert astray.detail == "cannot reach broker 2 at 127.0.0.1:7 (connection refused)"
    assert astray.hint.startswith("set the BROKERS entry of advertised.listeners of broker 2 ")
    assert (hanging.target, hanging.detail) == (
        "broker 2",
        "cannot reach broker 1 at 127.0.0.1:8 (no answer within 2 s)",
    )
    assert "it may hang" in hanging.hint
    (untold,) = found(ClusterState(BROKERS, unreached={1: (unknown,)}), "peers")
    assert untold.detail == "cannot reach broker 2 (it is not registered with an address)"
    well = ClusterState(BROKERS, unreached=dict.fromkeys(BROKERS, ()))
    assert [(check.status, check.target) for check in findings(well) if check.name == "peers"] == [
        ("ok", "broker 1,2,3")
    ]


def test_brokers_that_were_refused() -> None:
    refused = RefusedBroker(1, "10.0.0.7", "machine m, data in /copy", "they have one node.id", 3, 1_700_000_000_000)
    state = ClusterState(BROKERS, refused={1: (refused, refused._replace(place="", times=1)), 2: ()})
    copy, old = found(state, "refused")
    assert (copy.status, copy.target) == ("warning", "broker 1")
    assert copy.detail == (
        "has refused broker 1 from 10.0.0.7 (machine m, data in /copy), 3 times, last at 2023-11-14T22:13:20.000Z: "
        "they have one node.id"
    )
    assert "stop the copy" in copy.hint
    assert "give it another node.id and empty data directories" in copy.hint
    assert old.detail.startswith("has refused broker 1 from 10.0.0.7, last at 2023-")


def test_log_directories() -> None:
    directories = {1: [directory(1, error=56, path="/a")], 2: [directory(2, free=4)]}
    failed, full, silent = found(ClusterState(BROKERS, directories=directories), "directory")
    assert (failed.target, failed.status) == ("broker 1: /a", "failed")
    assert (full.target, full.status, full.detail) == ("broker 2: /d", "warning", "4.0 MB of 100.0 MB are free")
    assert (silent.target, silent.status, silent.hint) == ("broker 3", "warning", "`barnabas log-dirs` says why")


def test_a_full_disk_is_called_full() -> None:
    (full,) = found(ClusterState({1: BROKERS[1]}, directories={1: [directory(1, free=0)]}), "directory")
    assert (full.status, full.detail) == ("failed", "the disk is full: 0 B of 100.0 MB are free")


def test_partitions_without_a_leader_and_below_the_minimum() -> None:
    state = ClusterState(BROKERS, under_replicated=(row(-1, [1, 2], [], accepts=False, elr=[2]),))
    (offline,) = found(state, "offline")
    assert offline.target == "t-0"
    assert offline.hint.startswith("start broker 2; ")
    assert "`barnabas elect-leaders t:0 --unclean`" in offline.hint
    assert not found(state, "min-isr")
    (copyless,) = found(state._replace(fenced=frozenset({1, 2})), "offline")
    assert copyless.hint == "start broker 2: no live broker has a usable replica"
    (below,) = found(ClusterState(BROKERS, under_replicated=(row(1, [1, 2], [1], accepts=False),)), "min-isr")
    assert below.detail == "t-0 has fewer replicas in sync than min.insync.replicas"
    many = ClusterState(BROKERS, under_replicated=(row(-1, [1], [], accepts=False),) * 5)
    assert [check.target for check in found(many, "offline")] == ["t-0", "t-0", "t-0", "2 more"]


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"fenced": frozenset({3})}, "failed", "t-0 is not in sync: the broker is not live"),
        (
            {"directories": {1: [directory(1)], 3: [directory(3, size=None, error=56)]}},
            "failed",
            "t-0 is not in sync: their log directory has failed",
        ),
        (
            {"rates": {3: Rates(None, 5000)}, "throttled": {"t": frozenset({"0:3"})}},
            "warning",
            "t-0 is not in sync: their copies are throttled to 5.0 kB/s",
        ),
        (
            {"rates": {3: Rates(None, 5000)}, "throttled": {"t": frozenset({"0:2"})}},
            "failed",
            "t-0 is not in sync: the broker is live, but 0 B behind",
        ),
        (
            {"reassignments": {TopicPartition("t", 0): PartitionReassignment((1, 2, 3), (3,), ())}},
            "warning",
            "t-0 is not in sync: they are being copied",
        ),
        (
            {"directories": {1: [directory(1, size=5000)], 3: [directory(3, size=1000)]}},
            "failed",
            "t-0 is not in sync: the broker is live, but 4.0 kB behind",
        ),
    ],
)
def test_the_reason_why_a_replica_is_not_in_sync(changes: dict[str, Any], status: str, words: str) -> None:
    state = ClusterState(BROKERS, under_replicated=(row(1, [1, 2, 3], [1, 2]),))._replace(**changes)
    (check,) = found(state, "replica")
    assert (check.target, check.status, check.detail) == ("broker 3", status, words)
    assert check.hint


def test_a_replica_on_a_live_broker_has_no_leader_to_copy_from() -> None:
    state = ClusterState(BROKERS, frozenset({2}), under_replicated=(row(-1, [1, 2], [2]),))
    (check,) = found(state, "replica")
    assert (check.target, check.status) == ("broker 1", "failed")
    assert check.detail == "t-0 is not in sync: it has no leader to copy from"


def test_leaders_that_are_not_the_preferred_ones() -> None:
    state = ClusterState(
        BROKERS, topics=(topic("t", (2, (1, 2, 3), (1, 2, 3)), (2, (1, 2, 3), (2, 3)), (3, (3, 2), (2, 3))),)
    )
    uneven, _ = found(state, "leaders")
    assert (uneven.status, uneven.detail) == ("warning", "t-0 not led by its preferred leader")
    assert "`barnabas elect-leaders --all-topics`" in uneven.hint
    state = ClusterState(BROKERS, topics=(topic("t", *[(1, (1, 2), (1, 2))] * 3),))
    (idle,) = found(state, "leaders")
    assert (idle.target, idle.detail) == ("broker 3", "has no replica of any partition")
    assert "`barnabas cluster balance`" in idle.hint


def test_leaders_other_than_the_preferred_ones_are_counted() -> None:
    partitions = [(1, (1, 2), (1, 2)), (1, (2, 1), (1,)), (-1, (3, 2), ()), (2, (1, 2), (1, 2))]
    state = ClusterState(BROKERS, frozenset({3}), topics=(topic("t", *partitions),))
    moved, others = found(state, "leaders")
    assert moved.detail == "t-3 not led by its preferred leader"
    assert (others.status, others.target) == ("warning", "4 partitions")
    assert others.detail == "1 led by their preferred leaders, 2 by others, 1 by none"
    assert "ok" not in {check.status for check in findings(state) if check.name == "leaders"}


def test_leaders_that_are_uneven_by_their_assignment() -> None:
    all_on_one = topic("t", *[(1, (1, 2, 3), (1, 2, 3))] * 12)
    (uneven,) = found(ClusterState(BROKERS, topics=(all_on_one,)), "leaders")
    assert (uneven.status, uneven.target) == ("warning", "12 partitions")
    assert uneven.detail == "unevenly led: 12 by broker 1, 0 by broker 2, 0 by broker 3"
    assert "`barnabas cluster balance --execute`" in uneven.hint
    spread = topic("s", *[(n, (n, n % 3 + 1), (1, 2, 3)) for n in (1, 2, 3)] * 10)
    (uneven,) = found(ClusterState(BROKERS, topics=(all_on_one, spread)), "leaders")
    assert uneven.detail == "unevenly led: 22 by broker 1, 10 by broker 2, 10 by broker 3"


def test_leaders_that_are_uneven_by_few_or_cannot_be_spread() -> None:
    few = topic("t", *[(1, (1, 2, 3), (1, 2, 3))] * 4)
    assert not found(ClusterState(BROKERS, topics=(few,)), "leaders")
    alone = [(1, (1,), (1,))] * 12
    others = [(2, (2, 3), (2, 3)), (3, (3, 2), (2, 3))] * 6
    fixed = ClusterState(BROKERS, topics=(topic("t", *alone, *others),))
    assert not found(fixed, "leaders")
    moving = {TopicPartition("t", 0): PartitionReassignment((1, 2, 3), (3,), ())}
    all_on_one = topic("t", *[(1, (1, 2, 3), (1, 2, 3))] * 12)
    assert not found(ClusterState(BROKERS, topics=(all_on_one,), reassignments=moving), "leaders")


def test_coordinators() -> None:
    offsets = "__consumer_offsets"
    alone = topic(offsets, (1, (1,), (1,)), (2, (2,), (2,)), internal=True)
    (check,) = found(ClusterState(BROKERS, topics=(alone,)), "coordinators")
    assert (check.status, check.target) == ("failed", offsets)
    assert f"`barnabas cluster reassign plan {offsets} --replication-factor 3 | " in check.hint
    one = topic(offsets, (1, (1, 2), (1, 2)), (1, (2, 1), (1, 2)), internal=True)
    (check,) = found(ClusterState(BROKERS, topics=(one,)), "coordinators")
    assert (check.status, check.detail) == ("warning", "broker 1 coordinates all of it")
    spread = topic(offsets, (1, (1, 2), (1, 2)), (2, (2, 1), (1, 2)), internal=True)
    assert not found(ClusterState(BROKERS, topics=(spread,)), "coordinators")
    assert not found(ClusterState({1: BROKERS[1]}, topics=(alone,)), "coordinators")


def test_offline_partitions_have_no_coordinator() -> None:
    offsets = "__consumer_offsets"
    offline = topic(offsets, *[(-1, (1, 2), ())] * 2, internal=True)
    state = ClusterState(BROKERS, topics=(offline,))
    assert [check for check in findings(state) if check.name == "coordinators"] == []
    half = topic(offsets, (-1, (1, 2), ()), (2, (2, 1), (2,)), (3, (3, 1), (3,)), internal=True)
    (check,) = (each for each in findings(ClusterState(BROKERS, topics=(half,))) if each.name == "coordinators")
    assert (check.status, check.detail) == ("ok", "2 brokers coordinate, 2 replicas each")


def test_clocks() -> None:
    assert [check.status for check in clock_findings({1: 0, 2: -3000, 3: 1900})] == ["ok"]
    (apart,) = clock_findings({1: 0, 2: -3000, 3: 2100})
    assert (apart.status, apart.detail) == ("failed", "the clock of broker 3 is 5.1 s ahead of that of broker 2")
    assert not list(clock_findings({}))


def test_what_nobody_told_of_replicas_is_said_beside_what_is_known() -> None:
    unknown = {**row(1, [1, 2, 3], [1, 2]), "accepts_acks_all": None}
    state = ClusterState(
        BROKERS, frozenset({3}), 1, under_replicated=(unknown,), unanswered={"min.insync.replicas": "gave up after 5 s"}
    )
    known, untold = found(state, "replica")
    assert known.detail == "t-0 is not in sync: the broker is not live"
    assert (untold.target, untold.status) == ("min.insync.replicas", "failed")
    assert "gave up after 5 s" in untold.detail
    assert found(state, "min-isr") == []


def test_replicas_that_share_a_disk_though_there_are_others() -> None:
    def on(*devices: str, kept: int) -> list[LogDir]:
        """Directories on these disks, with the replica in one of them."""
        return [
            directory(1, size=100 if index == kept else None, path=f"/{device}")._replace(device=device)
            for index, device in enumerate(devices)
        ]

    apart = {1: on("a", "b", kept=0), 2: on("a", "b", kept=1), 3: on("a", "b", kept=0)}
    assert not found(ClusterState(BROKERS, directories=apart), "disks")
    together = apart | {2: on("a", "b", kept=0)}
    told = found(ClusterState(BROKERS, directories=together), "disks")
    assert [(check.status, check.target) for check in told] == [("warning", "1 partition")]
    shared = told[0]
    assert shared.detail == "t-0 has replicas on the same disk, which could be on more disks"
    assert "barnabas log-dirs move TOPIC:PARTITION --broker N --to PATH" in shared.hint
    one_disk = ClusterState(BROKERS, directories={n: on("a", kept=0) for n in BROKERS})
    (on_one,) = [check for check in findings(one_disk) if check.name == "disks"]
    assert (on_one.status, on_one.detail) == (
        "ok",
        "have all replicas on the same disk, as these brokers have no other: if it fails, all are gone",
    )
    moving = {TopicPartition("t", 0): PartitionReassignment((1, 2, 3), (3,), ())}
    assert not found(ClusterState(BROKERS, directories=together, reassignments=moving), "disks")


@pytest.mark.parametrize(
    ("choices", "most"),
    [
        ({1: "ab", 2: "ab", 3: "ab"}, 2),
        ({1: "ab", 2: "a", 3: "a"}, 2),
        ({1: "a", 2: "a", 3: "bc"}, 2),
        ({1: "abc", 2: "ab", 3: "a"}, 3),
        ({1: "a", 2: ""}, 1),
    ],
)
def test_on_how_many_disks_replicas_can_be(choices: dict[int, str], most: int) -> None:
    assert most_devices(choices) == most
