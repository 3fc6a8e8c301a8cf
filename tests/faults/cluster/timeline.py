"""The times for which a fault was felt: from a fault to the next acknowledgement, and the longest gaps between them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from barnabas.types import TopicPartition
from cluster.history import History

__all__ = ["Failover", "Felt", "Gap", "felt", "longest_gap", "summary", "unserved"]

Acknowledgements = dict[TopicPartition, list[tuple[float, float]]]


class Failover(NamedTuple):
    """A fault of a broker at ``at_s`` that led some partitions; ``what`` is the kind of fault."""

    what: str
    broker: int
    at_s: float
    led: frozenset[TopicPartition]


class Felt(NamedTuple):
    """The seconds until the first record that was sent after a fault was acknowledged, by partition."""

    what: str
    led: dict[TopicPartition, float]
    others: dict[TopicPartition, float]


class Gap(NamedTuple):
    """The time between two acknowledgements in a partition."""

    seconds: float
    topic_partition: TopicPartition | None
    at_s: float


def acknowledgements(history: History) -> Acknowledgements:
    """Returns (sent, acknowledged) of the records with a promise by partition, in the order of sending."""
    found: Acknowledgements = defaultdict(list)
    for stream, told in history.acknowledged.items():
        if stream.producer not in history.without_promise:
            found[stream.topic_partition] += [(each.sent_s, each.at_s) for each in told.values()]
    for times in found.values():
        times.sort()
    return found


def felt(history: History, failovers: Iterable[Failover]) -> list[Felt]:
    times = acknowledgements(history)
    found = []
    for failover in failovers:
        result = Felt(failover.what, {}, {})
        for topic_partition, acknowledged in times.items():
            # A response that was on its way when the fault came says nothing about the next leader.
            after = [at_s for _, at_s in acknowledged[bisect_left(acknowledged, (failover.at_s, 0.0)) :]]
            if after:
                side = result.led if topic_partition in failover.led else result.others
                side[topic_partition] = min(after) - failover.at_s
        found.append(result)
    return found


def unserved(history: History, within_s: float) -> list[str]:
    """Returns the partitions of which nothing was acknowledged for so many seconds while a broker was cut off from the
    others or from its disk. What was on its way before does not count."""
    found = []
    for cut in (*history.cut_off, *history.bad_disks):
        for topic_partition, told in acknowledgements(history).items():
            during = sorted(at_s for sent_s, at_s in told if cut.from_s <= sent_s and at_s <= cut.to_s)
            if any(after - before > within_s for before, after in pairwise([cut.from_s, *during, cut.to_s])):
                detail = f"nothing acknowledged for {within_s:.0f} s while broker {cut.broker} was cut off"
                found.append(f"{topic_partition}: {detail}")
    return found


def longest_gap(history: History) -> Gap:
    """Returns the longest time without an acknowledgement in a partition, between its first and its last."""
    longest = Gap(0.0, None, 0.0)
    for topic_partition, acknowledged in acknowledgements(history).items():
        for before, after in pairwise(sorted(at_s for _, at_s in acknowledged)):
            if after - before > longest.seconds:
                longest = Gap(after - before, topic_partition, before)
    return longest


def summary(faults: Iterable[Felt]) -> list[str]:
    """Returns a line for each kind of fault: medians and maxima of all partitions."""
    led: dict[str, list[float]] = defaultdict(list)
    others: dict[str, list[float]] = defaultdict(list)
    count: dict[str, int] = defaultdict(int)
    for fault in faults:
        count[fault.what] += 1
        led[fault.what] += fault.led.values()
        others[fault.what] += fault.others.values()
    return [
        f"{what}: {count[what]}x; acknowledged again after {_figures(led[what])} (led there),"
        f" {_figures(others[what])} (led elsewhere)"
        for what in sorted(count)
    ]


def _figures(seconds: list[float]) -> str:
    return f"median {median(seconds):.3f} s, at most {max(seconds):.3f} s" if seconds else "none"
