"""The findings about the state of a cluster, each with the evidence and a way out."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from barnabas.cli.cluster.health.disks import disk_findings
from barnabas.cli.cluster.health.state import ClusterState
from barnabas.cli.cluster.reassignment.balance import balanced, movable
from barnabas.cli.cluster.reassignment.moves import assignment_of
from barnabas.cli.cluster.reassignment.plan import Assignment
from barnabas.cli.cluster.reassignment.progress import largest_replicas
from barnabas.cli.framework.output import size_text, time_text
from barnabas.cli.framework.replication import ids_text
from barnabas.cli.framework.resources import plural, some
from barnabas.client.admin.log_dirs import FULL_BYTES
from barnabas.client.diagnosis.checks import FAILED, OK, SKEW_MAX_MS, WARNING, Check
from barnabas.log.log_damage import MARK, WAS_MISSING
from barnabas.metadata.image import INTERNAL_TOPICS
from barnabas.metadata.unreached_peer import UnreachedPeer
from barnabas.registry.registry import AFTER_LOSS
from barnabas.types import TopicPartition

__all__ = ["clock_findings", "findings"]

CONTROLLER_SLOW_MS: Final = 1000
REGISTRY_SLOW_MS: Final = 500
FREE_SPACE_MIN: Final = 0.05
UNEVEN_MIN: Final = 3
UNEVEN_RATIO: Final = 1.25
"""A broker that leads so many partitions more than the mean, and so many times the mean, leads too many."""
BROKERS_MAX: Final = 10
NAMED_MAX: Final = 3
"""So many partitions are named, the others are counted."""


def findings(state: ClusterState) -> Iterator[Check]:
    """Yields the checks of the cluster's parts, from those on which the others depend."""
    yield from _controller(state)
    yield from _registry(state)
    yield from _brokers(state)
    yield from _releases(state)
    yield from _peers(state)
    yield from _refused(state)
    yield from _directories(state)
    yield from disk_findings(state)
    yield from _partitions(state)
    yield from _leaders(state)
    yield from _internal_topics(state)


def clock_findings(ahead_ms: Mapping[int, int]) -> Iterator[Check]:
    """Yields a check of the brokers' clocks; `ahead_ms` is by how much each is ahead of ours."""
    if not ahead_ms:
        return
    first, last = min(ahead_ms, key=lambda n: ahead_ms[n]), max(ahead_ms, key=lambda n: ahead_ms[n])
    skew = ahead_ms[last] - ahead_ms[first]
    if skew > SKEW_MAX_MS:
        detail = f"the clock of broker {last} is {skew / 1000:.1f} s ahead of that of broker {first}"
        hint = "set the clocks by NTP (`timedatectl set-ntp true` on each machine): retention and timestamps go by them"
        yield Check("clock", "brokers", FAILED, detail, hint)
    else:
        yield Check("clock", "brokers", OK, f"the clocks of {plural(len(ahead_ms), 'broker')} are within {skew} ms")


def _controller(state: ClusterState) -> Iterator[Check]:
    target = f"broker {state.controller_id}" if state.controller_id >= 0 else "none"
    consequence = "nobody elects leaders or creates topics meanwhile"
    if state.controller_id < 0:
        hint = f"{consequence}: start the brokers that have stopped; `barnabas cluster` lists them"
        yield Check("controller", target, FAILED, "the cluster has no controller", hint)
    elif state.controller.error:
        hint = f"{consequence}: look at the log of {target}, or end its process, so that another broker takes over"
        yield Check("controller", target, FAILED, f"does not answer: {state.controller.error}", hint)
    else:
        elapsed = state.controller.elapsed_ms
        slow = elapsed > CONTROLLER_SLOW_MS
        hint = f"elections take as long: look at the load of the machine of {target} and at its log" if slow else ""
        yield Check("controller", target, WARNING if slow else OK, "answers", hint, elapsed)


def _registry(state: ClusterState) -> Iterator[Check]:
    name = f"ZooKeeper at {state.zookeeper}" if state.zookeeper else "the registry"
    hint = (
        f"ask ZooKeeper itself, with `echo srvr | nc HOST PORT` for each server of {state.zookeeper}"
        if state.zookeeper
        else "its file is on a slow or full disk, or a stopped process holds its lock"
    )
    well = True
    for node_id, answer in sorted(state.registry.items()):
        target = f"broker {node_id}"
        if answer.error:
            well = False
            detail = f"cannot read the registry: {answer.error}"
            yield Check("registry", target, FAILED, detail, f"elections and changes wait: {hint}")
        elif answer.elapsed_ms > REGISTRY_SLOW_MS:
            well = False
            detail = f"{name} needs {answer.elapsed_ms:.0f} ms to answer"
            yield Check("registry", target, WARNING, detail, f"elections and changes take long: {hint}")
    for loss in sorted(set(state.registry_losses.values())):
        well = False
        target = f"broker {ids_text([n for n, told in sorted(state.registry_losses.items()) if told == loss])}"
        yield Check("registry", target, FAILED, loss, AFTER_LOSS)
    usable_bytes, total_bytes = min(state.registry_space.values(), default=(0, 0))
    if usable_bytes < FREE_SPACE_MIN * total_bytes:
        well = False
        status = FAILED if usable_bytes < FULL_BYTES else WARNING
        detail = f"{size_text(usable_bytes)} of {size_text(total_bytes)} are free on its disk"
        hint = "make room there: once it is full, leaders and in-sync replicas change only as long as the reserve lasts"
        yield Check("registry", name, status, detail, hint)
    if well and state.registry:
        slowest = max(answer.elapsed_ms for answer in state.registry.values())
        yield Check("registry", name, OK, f"answers {plural(len(state.registry), 'broker')}", "", slowest)


def _brokers(state: ClusterState) -> Iterator[Check]:
    replicas = Counter(n for view in state.topics for p in view.partitions.values() for n in p.replicas)
    missing = sorted(state.fenced | (replicas.keys() - state.brokers.keys()))
    for node_id in missing:
        what = "has stopped or is not heard of" if node_id in state.fenced else "is not registered"
        detail = f"{what}; it has {plural(replicas[node_id], 'replica')}"
        status = FAILED if replicas[node_id] else WARNING
        yield Check("broker", f"broker {node_id}", status, detail, _way_back(state, node_id))
    if not missing:
        yield Check("broker", f"broker {ids_text(state.live)}", OK, "live")


def _releases(state: ClusterState) -> Iterator[Check]:
    """Yields a check of the brokers' releases, if they tell them."""
    by_release: defaultdict[str, list[int]] = defaultdict(list)
    for node_id, release in sorted(state.releases.items()):
        by_release[release].append(node_id)
    if len(by_release) == 1:
        yield Check("release", f"broker {ids_text(sorted(state.releases))}", OK, next(iter(by_release)))
    elif by_release:
        detail = ", ".join(f"{release} on broker {ids_text(ids)}" for release, ids in sorted(by_release.items()))
        hint = "complete the upgrade, or take it back, by `barnabas cluster roll`: docs/operations.md has the steps"
        yield Check("release", plural(len(by_release), "release"), WARNING, detail, hint)


def _way_back(state: ClusterState, node_id: int) -> str:
    """Returns what to do about a broker that is not live."""
    kept = [
        (TopicPartition(view.name, p.partition), p)
        for view in state.topics
        for p in view.in_order()
        if node_id in p.replicas
    ]
    others = set(state.live) - {node_id}
    alone = [tp for tp, p in kept if others.isdisjoint(p.in_sync_replicas)]
    if alone:
        return (
            f"start it with its data: no live broker has an in-sync replica of {some(alone, NAMED_MAX)}; if the data"
            " are lost for good, its log says at the start how to give them up"
        )
    steps = [f"`barnabas cluster unregister {node_id}`"]
    if kept:
        steps.insert(0, f"`barnabas cluster drain {node_id} --execute`")
    if max((len(p.replicas) for _, p in kept), default=0) > len(others):
        steps.insert(0, "add another broker")
    return f"start it, also with an empty directory; or, if it is gone for good: {', then '.join(steps)}"


def _peers(state: ClusterState) -> Iterator[Check]:
    """Yields a check for each live broker that others cannot reach. One that is not live is no finding here."""
    askers: defaultdict[UnreachedPeer, list[int]] = defaultdict(list)
    for node_id, peers in sorted(state.unreached.items()):
        for peer in peers:
            if peer.broker in state.live:
                askers[peer].append(node_id)
    for peer, node_ids in sorted(askers.items()):
        where = f" at {peer.address}" if peer.address else ""
        detail = f"cannot reach broker {peer.broker}{where} ({peer.error})"
        yield Check("peers", f"broker {ids_text(node_ids)}", FAILED, detail, _way_to(peer))
    if state.unreached and not askers and len(state.live) > 1:
        yield Check("peers", f"broker {ids_text(sorted(state.unreached))}", OK, "all others are reached from there")


def _way_to(peer: UnreachedPeer) -> str:
    if not peer.listener:
        return f"the log of broker {peer.broker} says why"
    address = (
        f"set the {peer.listener} entry of advertised.listeners of broker {peer.broker} to an address at which the"
        " other brokers reach it"
    )
    if peer.stage in ("dns", "tcp"):
        return address
    return f"look at its log, as it may hang, and at the network between the brokers; or {address}"


_WAY_OF_REFUSED: Final = (
    "if it is a copy of this broker's machine or data directories, or this broker is one, stop the copy and see that"
    " nothing starts it again; to look into it, start it with a copy of the registry, too. If it is to be a broker of"
    " this cluster, give it another node.id and empty data directories"
)


def _refused(state: ClusterState) -> Iterator[Check]:
    """Yields a check for each broker that does not belong to the cluster. It was refused: nothing has failed."""
    for node_id, refused in sorted(state.refused.items()):
        for each in refused:
            times = f", {each.times} times" if each.times > 1 else ""
            detail = f"has refused {each}{times}, last at {time_text(each.last_ms)}: {each.problem}"
            yield Check("refused", f"broker {node_id}", WARNING, detail, _WAY_OF_REFUSED)


_WAY_OF_DAMAGED: Final = (
    "look at the disk; where another replica is in sync that one leads, and the damaged log is put aside (-stray) and"
    " copied anew, or the broker's log says why not. Where none is, bring one back; records that no replica has any"
    " more are passed over by a seek beyond"
)
_WAY_OF_COORDINATOR: Final = (
    "look at the disk, and bring another replica back: it takes over. If there is none, its groups or transactions have"
    " no coordinator until the partition's directory is moved away while the broker is stopped; it begins empty then"
)
_WAY_OF_LOST: Final = (
    "if there is a copy of that directory, stop the broker and put the copy in the place of the new one. If there is"
    f" none, remove the file {MARK} in the new one while the broker is stopped, and nobody is told of it any more"
)


def _directories(state: ClusterState) -> Iterator[Check]:
    well = True
    for node_id, directories in sorted(state.directories.items()):
        for directory in directories:
            target = f"broker {node_id}: {directory.path}"
            if directory.error_code:
                well = False
                hint = "mend or mount the disk, and restart the broker; the others have its replicas meanwhile"
                yield Check("directory", target, FAILED, "the log directory has failed", hint)
            elif directory.is_full or 0 <= directory.usable_bytes < FREE_SPACE_MIN * directory.total_bytes:
                well = False
                free = f"{size_text(directory.usable_bytes)} of {size_text(directory.total_bytes)} are free"
                hint = "make room: shorter retention (`barnabas configs set topic TOPIC retention.ms=MS`), or"
                hint += " `barnabas cluster balance --execute`"
                if directory.is_full:
                    yield Check("directory", target, FAILED, f"the disk is full: {free}", hint)
                else:
                    yield Check("directory", target, WARNING, free, hint)
            for replica in directory.replicas:
                if replica.damage:
                    well = False
                    target = f"broker {node_id}: {replica.topic}-{replica.partition}"
                    if WAS_MISSING in replica.damage:
                        what, hint = "its records are lost", _WAY_OF_LOST
                    else:
                        what = "its log is damaged"
                        hint = _WAY_OF_COORDINATOR if replica.topic in INTERNAL_TOPICS else _WAY_OF_DAMAGED
                    yield Check("directory", target, FAILED, f"{what}: {replica.damage}", hint)
    silent = sorted(set(state.live) - state.directories.keys())
    for node_id in silent:
        hint = "`barnabas log-dirs` says why"
        yield Check("directory", f"broker {node_id}", WARNING, "does not tell its log directories", hint)
    if well and not silent and state.directories:
        count = sum(map(len, state.directories.values()))
        yield Check("directory", f"of {plural(len(state.directories), 'broker')}", OK, f"all {count} usable")


def _partitions(state: ClusterState) -> Iterator[Check]:
    offline = [row for row in state.under_replicated if row["leader"] < 0]
    for row in offline[:NAMED_MAX]:
        eligible = row["elr"] or row["isr"] or row["replicas"]
        hint = f"start broker {' or '.join(map(str, eligible))}"
        if not set(state.live).isdisjoint(set(row["replicas"]) - set(row["offline_replicas"])):
            hint += (
                "; if it is gone for good, an unclean election gives up what only it had:"
                f" `barnabas elect-leaders {row['topic']}:{row['partition']} --unclean`"
            )
        else:
            hint += ": no live broker has a usable replica"
        yield Check("offline", str(_partition_of(row)), FAILED, "has no leader: it serves nothing", hint)
    if len(offline) > NAMED_MAX:
        hint = "`barnabas cluster under-replicated` lists them"
        yield Check("offline", f"{len(offline) - NAMED_MAX} more", FAILED, "have no leader", hint)
    below = [row for row in state.under_replicated if row["accepts_acks_all"] is False and row["leader"] >= 0]
    if below:
        detail = f"{_names(below)} {'has' if len(below) == 1 else 'have'} fewer replicas in sync than"
        hint = "bring the missing replicas back, as the following lines say; until then producers wait or fail"
        yield Check("min-isr", plural(len(below), "partition"), FAILED, f"{detail} min.insync.replicas", hint)
    yield from _missing_replicas(state)
    if not state.under_replicated:
        count = sum(len(p.replicas) for view in state.topics for p in view.partitions.values())
        yield Check("replica", plural(count, "replica"), OK, "in sync")


def _missing_replicas(state: ClusterState) -> Iterator[Check]:
    """Yields a check for each reason why replicas of a broker are not in sync, and for what is not known of them."""
    found: defaultdict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in state.under_replicated:
        for node_id in sorted(set(row["replicas"]) - set(row["isr"])):
            found[node_id, _reason(state, row, node_id)].append(row)
    for (node_id, reason), rows in sorted(found.items()):
        status, text, hint = {
            "dead": (FAILED, "the broker is not live", f"start broker {node_id}"),
            "directory": (
                FAILED,
                "their log directory has failed",
                f"mend or mount the disk of broker {node_id}, and restart it",
            ),
            "leaderless": (
                FAILED,
                f"{'it has' if len(rows) == 1 else 'they have'} no leader to copy from",
                "bring a leader back, as the lines above say",
            ),
            "added": (WARNING, "they are being copied", "`barnabas cluster reassign status` shows how far they are"),
            "throttled": (
                WARNING,
                f"their copies are throttled to {_rate(state, node_id)}",
                f"allow more: `barnabas configs set broker {node_id} follower.replication.throttled.rate=BYTES`",
            ),
            "behind": (
                FAILED,
                f"the broker is live, but {size_text(sum(_bytes_behind(state, row, node_id) for row in rows))} behind",
                f"it is too slow or stuck: look at its log, disk (`barnabas log-dirs --broker {node_id}`) and network",
            ),
        }[reason]
        names = f"{_names(rows)} {'is' if len(rows) == 1 else 'are'} not in sync"
        yield Check("replica", f"broker {node_id}", status, f"{names}: {text}", hint)
    for what, error in state.unanswered.items():
        hint = "a broker hangs, as other lines may say, or needs longer than --timeout"
        yield Check("replica", what, FAILED, f"not known of replicas that are not in sync: {error}", hint)


def _reason(state: ClusterState, row: Mapping[str, Any], node_id: int) -> str:
    if node_id not in state.live:
        return "dead"
    tp = _partition_of(row)
    directories = state.directories.get(node_id, [])
    here = any(replica[:2] == tp for directory in directories for replica in directory.replicas)
    if node_id in row["offline_replicas"] or (not here and any(directory.error_code for directory in directories)):
        return "directory"
    if row["leader"] < 0:
        return "leaderless"
    if _is_throttled(state, row, node_id):
        return "throttled"
    moving = state.reassignments.get(tp)
    return "added" if moving is not None and node_id in moving.adding_replicas else "behind"


def _is_throttled(state: ClusterState, row: Mapping[str, Any], node_id: int) -> bool:
    named = state.throttled.get(row["topic"], frozenset())
    return bool(named & {"*", f"{row['partition']}:{node_id}"}) and _rate(state, node_id) != ""


def _rate(state: ClusterState, node_id: int) -> str:
    rates = state.rates.get(node_id)
    return "" if rates is None or rates.follower is None else f"{size_text(rates.follower)}/s"


def _bytes_behind(state: ClusterState, row: Mapping[str, Any], node_id: int) -> int:
    leader, own = (_size(state, row, broker) for broker in (row["leader"], node_id))
    return max(0, leader - own)


def _size(state: ClusterState, row: Mapping[str, Any], node_id: int) -> int:
    tp = _partition_of(row)
    replicas = (r for directory in state.directories.get(node_id, ()) for r in directory.replicas if not r.is_future)
    return sum(replica.size_bytes for replica in replicas if replica[:2] == tp)


def _leaders(state: ClusterState) -> Iterator[Check]:
    partitions = [
        (TopicPartition(view.name, p.partition), p) for view in state.topics for p in view.partitions.values()
    ]
    moved = [tp for tp, p in partitions if p.leader >= 0 and p.leader != p.replicas[0] in p.in_sync_replicas]
    if moved:
        detail = f"{some(moved, NAMED_MAX)} not led by {'its' if len(moved) == 1 else 'their'} preferred leader"
        hint = "the load is uneven: `barnabas elect-leaders --all-topics`"
        yield Check("leaders", plural(len(moved), "partition"), WARNING, detail, hint)
    by_preferred = sum(p.leader == p.replicas[0] for _, p in partitions)
    by_none = sum(p.leader < 0 for _, p in partitions)
    by_others = len(partitions) - by_preferred - by_none
    if by_others + by_none > len(moved):
        counts = [f"{by_preferred} led by their preferred leaders"]
        counts += [f"{by_others} by others"] if by_others else []
        counts += [f"{by_none} by none"] if by_none else []
        hint = "preferred leaders lead again once their replicas are in sync: see the lines above"
        yield Check("leaders", plural(len(partitions), "partition"), WARNING, ", ".join(counts), hint)
    having = {node_id for _, p in partitions for node_id in p.replicas}
    idle = [node_id for node_id in state.live if node_id not in having]
    if idle and len(partitions) >= len(state.live):
        hint = "give it a share: `barnabas cluster balance` shows a plan, --execute carries it out"
        yield Check("leaders", f"broker {ids_text(idle)}", WARNING, "has no replica of any partition", hint)
    uneven = [] if idle else list(_uneven_leaders(state))
    yield from uneven
    if by_preferred == len(partitions) and not idle and not uneven:
        yield Check("leaders", plural(len(partitions), "partition"), OK, "led by their preferred leaders")


def _uneven_leaders(state: ClusterState) -> Iterator[Check]:
    """Yields a check if a broker is to lead many more partitions than the mean, and `cluster balance` would change
    that."""
    if not state.live or state.reassignments:
        return
    assigned = assignment_of(state.topics)
    leaders = _leaders_of(state, assigned)
    most, mean = max(leaders.values()), sum(leaders.values()) / len(leaders)
    if most < max(mean + UNEVEN_MIN, mean * UNEVEN_RATIO):
        return
    racks = {node_id: state.brokers[node_id].rack for node_id in state.live}
    changed = balanced(movable(assigned, racks), assigned, racks, largest_replicas(state.directories))
    if max(_leaders_of(state, {**assigned, **changed}).values()) >= most:
        return
    counts = some([f"{count} by broker {node_id}" for node_id, count in leaders.most_common()], BROKERS_MAX)
    hint = "spread them: `barnabas cluster balance` shows a plan, `barnabas cluster balance --execute` carries it out"
    yield Check("leaders", plural(len(assigned), "partition"), WARNING, f"unevenly led: {counts}", hint)


def _leaders_of(state: ClusterState, assigned: Assignment) -> Counter[int]:
    """Returns of how many partitions each live broker is the preferred leader."""
    leaders = Counter(dict.fromkeys(state.live, 0))
    leaders.update(replicas[0] for replicas in assigned.values() if replicas[0] in leaders)
    return leaders


def _internal_topics(state: ClusterState) -> Iterator[Check]:
    """Yields checks of the topics in which coordinators keep groups and transactions."""
    if len(state.live) < 2:
        return
    for view in state.topics:
        if not view.is_internal or not view.partitions:
            continue
        partitions = list(view.partitions.values())
        factor = min(len(p.replicas) for p in partitions)
        leaders = [p.leader for p in partitions if p.leader >= 0]
        coordinators = set(leaders)
        if factor == 1:
            wanted = min(3, len(state.live))
            hint = (
                f"`barnabas cluster reassign plan {view.name} --replication-factor {wanted}"
                " | barnabas cluster reassign execute - --wait`"
            )
            detail = "has one replica: groups or transactions stand still when its broker does, and are lost with it"
            yield Check("coordinators", view.name, FAILED, detail, hint)
        elif len(coordinators) == 1 < len(leaders):
            detail = f"broker {leaders[0]} coordinates all of it"
            hint = (
                f"`barnabas elect-leaders {view.name}`; if that changes nothing: `barnabas cluster balance --execute`"
            )
            yield Check("coordinators", view.name, WARNING, detail, hint)
        elif coordinators:
            detail = f"{plural(len(coordinators), 'broker')} coordinate, {plural(factor, 'replica')} each"
            yield Check("coordinators", view.name, OK, detail)


def _partition_of(row: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])


def _names(rows: Sequence[Mapping[str, Any]]) -> str:
    return some(list(map(_partition_of, rows)), NAMED_MAX)
