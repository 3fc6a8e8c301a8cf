"""Finds the anomalies in a history: everything that a cluster must never do to its clients.

A partition is judged by its records at the end (`History.log`): nothing is deleted in a round, so whatever was
acknowledged or read must be there, at its offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import accumulate, pairwise
from typing import NamedTuple

from barnabas.types import TopicPartition
from cluster.history import History, Outcome, Record, Stream

__all__ = ["Anomaly", "Kind", "check"]


class Kind(Enum):
    """The kinds of anomalies."""

    LOST = "lost"
    """An acknowledged record, or one of a committed transaction, is not there."""
    PHANTOM = "phantom"
    """A record that nobody sent."""
    DOUBLED = "doubled"
    """A record of an idempotent producer is there twice."""
    REORDERED = "reordered"
    """A record of an idempotent producer is there after a later one."""
    INCONSISTENT = "inconsistent"
    """An offset has had two records, or a record was acknowledged with another offset, or epochs go back in a log."""
    VANISHED = "vanished"
    """A record that a reader got is no longer there."""
    SKIPPED = "skipped"
    """A reader passed over a record."""
    READER_WENT_BACK = "reader went back"
    """A reader got an offset again, or a lower one."""
    END_WENT_BACK = "end went back"
    """An end offset (the high watermark) was lower than before."""
    COMMIT_WENT_BACK = "commit went back"
    """A committed offset was lower than one that had been acknowledged or seen before."""
    GENERATION_WENT_BACK = "generation went back"
    """A group's generation was not higher than one before."""
    ABORTED_READ = "aborted read"
    """read_committed returned a record of an aborted transaction."""
    PARTIAL = "partial transaction"
    """read_committed returned some records of a transaction and not the others."""
    COPY = "copy"
    """The copies of a partition are not its records, each once and in order."""
    ALONE = "acknowledged alone"
    """A broker that was cut off from all others acknowledged a record that needs one of them."""


class Anomaly(NamedTuple):
    """Something that must never happen, and the place where it did."""

    kind: Kind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.detail}"


def check(history: History) -> list[Anomaly]:
    """Returns all anomalies of a history, none for a correct cluster."""
    return [
        *_lost(history),
        *_streams(history),
        *_inconsistent(history),
        *_runs(history),
        *_groups(history),
        *_ends(history),
        *_commits(history),
        *_generations(history),
        *_transactions(history),
        *_copies(history),
        *_alone(history),
    ]


def _brief(numbers: Iterable[int]) -> str:
    numbers = sorted(numbers)
    shown = ", ".join(map(str, numbers[:5]))
    return f"{len(numbers)} ({shown}{', …' if len(numbers) > 5 else ''})"


def _positions(records: Iterable[Record]) -> dict[tuple[str, int], int]:
    """Returns the offset of each record by producer and sequence, the first one of several."""
    found: dict[tuple[str, int], int] = {}
    for record in records:
        found.setdefault((record.producer, record.sequence), record.offset)
    return found


def _lost(history: History) -> Iterator[Anomaly]:
    positions = {topic_partition: _positions(records) for topic_partition, records in history.log.items()}
    for stream, acknowledged in history.acknowledged.items():
        if stream.producer in history.without_promise:
            continue
        there = positions.get(stream.topic_partition, {})
        at = f"{stream.producer} in {stream.topic_partition}"
        lost = [sequence for sequence in acknowledged if (stream.producer, sequence) not in there]
        if lost:
            offsets = _brief(acknowledged[sequence].offset for sequence in lost)
            yield Anomaly(Kind.LOST, f"{at}: acknowledged records {_brief(lost)} at offsets {offsets}")
        for sequence, told in acknowledged.items():
            offset = there.get((stream.producer, sequence), told.offset)
            if told.offset not in (-1, offset):  # -1: a duplicate whose offset the leader has forgotten
                detail = f"{at}: record {sequence} was acknowledged at {told.offset} and is at {offset}"
                yield Anomaly(Kind.INCONSISTENT, detail)


def _streams(history: History) -> Iterator[Anomaly]:
    """Checks the records of each producer in each log."""
    for topic_partition, records in history.log.items():
        source = history.copies.get(topic_partition)
        seen: dict[str, set[int]] = defaultdict(set)
        highest: dict[str, int] = defaultdict(lambda: -1)
        for record in records:
            producer, sequence = record.producer, record.sequence
            at = f"{topic_partition}, offset {record.offset}: record {sequence} of {producer or 'nobody'}"
            if sequence < 0 or sequence >= history.sent.get(Stream(producer, source or topic_partition), 0):
                yield Anomaly(Kind.PHANTOM, at)
            elif source is None and producer not in history.without_promise:
                if sequence in seen[producer]:
                    yield Anomaly(Kind.DOUBLED, at)
                elif sequence < highest[producer]:
                    yield Anomaly(Kind.REORDERED, f"{at} after {highest[producer]}")
            seen[producer].add(sequence)
            highest[producer] = max(highest[producer], sequence)


def _inconsistent(history: History) -> Iterator[Anomaly]:
    """Two reads of an offset are alike, and the epochs of a log never go back."""
    for topic_partition, records in history.log.items():
        for before, after in pairwise(records):
            if after.epoch < before.epoch and after.epoch >= 0:
                detail = f"epoch {after.epoch} at {after.offset} follows epoch {before.epoch} at {before.offset}"
                yield Anomaly(Kind.INCONSISTENT, f"{topic_partition}: {detail}")
    by_offset = {
        topic_partition: {record.offset: record for record in records}
        for topic_partition, records in history.log.items()
    }
    readings = [(run.reader, run.topic_partition, run.records) for run in history.runs]
    readings += [("the last reader", *item) for item in history.committed_log.items()]
    for reader, topic_partition, records in readings:
        there = by_offset.get(topic_partition, {})
        gone: list[int] = []
        for record in records:
            kept = there.get(record.offset)
            if kept is None:
                gone.append(record.offset)
            elif kept[2:] != record[2:] or (kept.epoch != record.epoch and min(kept.epoch, record.epoch) >= 0):
                detail = f"{topic_partition}: {reader} got {record}, at the end it was {kept}"
                yield Anomaly(Kind.INCONSISTENT, detail)
        if gone:
            yield Anomaly(Kind.VANISHED, f"{topic_partition}: {reader} had got the offsets {_brief(gone)}")


def _runs(history: History) -> Iterator[Anomaly]:
    """A reader gets each record that it may see, in order."""
    offsets = {
        committed: {topic_partition: [record.offset for record in records] for topic_partition, records in log.items()}
        for committed, log in ((False, history.log), (True, history.committed_log))
    }
    for run in history.runs:
        visible = offsets[run.read_committed].get(run.topic_partition, [])
        at = f"{run.reader} in {run.topic_partition}"
        if run.read_committed:
            there = set(visible)
            hidden = set(offsets[False].get(run.topic_partition, ())) - there
            aborted = [record.offset for record in run.records if record.offset in hidden]
            if aborted:
                yield Anomaly(Kind.ABORTED_READ, f"{at}: offsets {_brief(aborted)}")
        for before, after in pairwise(run.records):
            if after.offset <= before.offset:
                yield Anomaly(Kind.READER_WENT_BACK, f"{at}: offset {after.offset} came after {before.offset}")
                continue
            left = bisect_right(visible, before.offset)
            passed = [offset for offset in visible[left : left + 6] if offset < after.offset]
            if passed:
                detail = f"{at}: offset {after.offset} came after {before.offset}; between are {_brief(passed)}"
                yield Anomaly(Kind.SKIPPED, detail)


def _groups(history: History) -> Iterator[Anomaly]:
    """The members of a group get all records together, up to the last that one of them got."""
    got: dict[tuple[str, TopicPartition], set[int]] = defaultdict(set)
    for run in history.runs:
        if run.group:
            got[run.group, run.topic_partition].update(record.offset for record in run.records)
    for (group, topic_partition), offsets in got.items():
        last = max(offsets, default=-1)
        log = history.log.get(topic_partition, [])
        passed = [record.offset for record in log if record.offset < last and record.offset not in offsets]
        if passed:
            yield Anomaly(Kind.SKIPPED, f"no member of {group} got the offsets {_brief(passed)} of {topic_partition}")


def _ends(history: History) -> Iterator[Anomaly]:
    """An end that was asked for after another had been told is not lower, whoever asked."""
    told: dict[TopicPartition, list[tuple[float, int]]] = defaultdict(list)
    for seen in sorted(history.ends, key=lambda seen: seen.at_s):
        highest = told[seen.topic_partition]
        before = bisect_right(highest, (seen.began_s, -1)) - 1
        if before >= 0 and highest[before][1] > seen.offset:
            detail = f"{seen.topic_partition}: {seen.offset} after {highest[before][1]}"
            yield Anomaly(Kind.END_WENT_BACK, detail)
        highest.append((seen.at_s, max(seen.offset, highest[-1][1] if highest else 0)))
    for run in history.runs:
        log = history.log.get(run.topic_partition, [])
        if run.records and log and run.records[-1].offset > log[-1].offset:
            detail = f"{run.topic_partition}: {run.reader} had got {run.records[-1].offset}"
            yield Anomaly(Kind.END_WENT_BACK, f"{detail}, the last record is {log[-1].offset}")


def _commits(history: History) -> Iterator[Anomaly]:
    """Whoever asks for a committed offset is told the last one acknowledged or told before, or a later one."""
    known: dict[tuple[str, TopicPartition], list[tuple[float, int]]] = defaultdict(list)
    for commit in history.commits:
        known[commit.group, commit.topic_partition].append((commit.at_s, commit.offset))
    for seen in history.commits_seen:
        known[seen.group, seen.topic_partition].append((seen.at_s, seen.offset))
    highest = {key: _highest(sorted(offsets)) for key, offsets in known.items()}
    for seen in history.commits_seen:
        before = highest[seen.group, seen.topic_partition]
        index = bisect_right(before, (seen.began_s, -1)) - 1
        if index >= 0 and seen.offset < before[index][1]:
            detail = f"{seen.group} in {seen.topic_partition}: {seen.offset} after {before[index][1]}"
            yield Anomaly(Kind.COMMIT_WENT_BACK, detail)


def _highest(numbers: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """Returns (time, number) with the highest number until then."""
    return list(accumulate(numbers, lambda before, now: (now[0], max(before[1], now[1]))))


def _generations(history: History) -> Iterator[Anomaly]:
    """A member that begins to join after another was told a generation gets a later one."""
    told: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for seen in sorted(history.generations, key=lambda seen: seen.at_s):
        highest = told[seen.group]
        before = bisect_right(highest, (seen.began_s, -1)) - 1
        if before >= 0 and seen.generation_id < highest[before][1]:
            detail = f"{seen.group}: {seen.member} joined {seen.generation_id} after {highest[before][1]}"
            yield Anomaly(Kind.GENERATION_WENT_BACK, detail)
        highest.append((seen.at_s, max(seen.generation_id, highest[-1][1] if highest else 0)))


def _transactions(history: History) -> Iterator[Anomaly]:
    positions = {topic_partition: _positions(records) for topic_partition, records in history.committed_log.items()}
    for name, transaction in history.transactions.items():
        there = [
            (stream.producer, sequence) in positions.get(stream.topic_partition, {})
            for stream, sequence in transaction.records
        ]
        found = f"{name}: {sum(there)} of {len(there)} records"
        if any(there) and not all(there):
            yield Anomaly(Kind.PARTIAL, f"{found}, {transaction.outcome.value}")
        elif any(there) and transaction.outcome is Outcome.ABORTED:
            yield Anomaly(Kind.ABORTED_READ, f"{found} of an aborted transaction")
        elif there and not any(there) and transaction.outcome is Outcome.COMMITTED:
            yield Anomaly(Kind.LOST, f"{found} of a committed transaction")


def _copies(history: History) -> Iterator[Anomaly]:
    for copy, source in history.copies.items():
        wanted = [record[2:] for record in history.committed_log.get(source, [])]
        found = [record[2:] for record in history.committed_log.get(copy, [])]
        if found != wanted:
            place = next((i for i, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), None)
            detail = f"{len(found)} of {len(wanted)} records"
            if place is not None:
                detail += f"; the {place}th is {found[place][:2]}, not {wanted[place][:2]}"
            doubled = len(found) - len(set(found))
            detail += f"; {doubled} doubled, {len(set(wanted) - set(found))} missing"
            yield Anomaly(Kind.COPY, f"{copy}: {detail}")


def _alone(history: History) -> Iterator[Anomaly]:
    """What is sent to a broker while it is cut off is not acknowledged before it reaches the others again."""
    for stream, acknowledged in history.acknowledged.items():
        for sequence, told in acknowledged.items():
            for cut in history.cut_off:
                if told.broker == cut.broker and cut.from_s <= told.sent_s and told.at_s <= cut.to_s:
                    after_s = told.at_s - cut.from_s
                    at = f"record {sequence} of {stream.producer} in {stream.topic_partition}"
                    yield Anomaly(Kind.ALONE, f"{at} by broker {cut.broker}, {after_s:.2f} s after it was cut off")
