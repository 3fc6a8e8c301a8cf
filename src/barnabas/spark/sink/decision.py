"""A sink's decision about a batch, encoded as committed offsets of a consumer group.

The offset is the number of the batch. The offset's metadata lists the transactions that are committed with the batch.
Brokers accept 4,096 bytes of metadata, so a longer list continues at the next partition of the same topic. All of these
offsets are committed in one transaction.

The metadata is a head and an entry for each transaction: the transactional id without the prefix of its run, `:`, three
digits of the producer epoch, and the producer id, both in base 36. Transactional ids end with the name of a worker and
a number (`worker_names`). An entry leaves the worker out if it is that of the entry before, and the number if it is 0,
so metadata has room for 200 tasks. The older form (`_FORM_1`), with the full id in each entry, can still be decoded.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.errors import BarnabasError, UsageError
from barnabas.types import TopicPartition

__all__ = [
    "METADATA_BYTES_MAX",
    "NO_BATCH",
    "NO_RUN",
    "DamagedDecision",
    "Decision",
    "Transaction",
    "decode_decision",
    "encode_decision",
    "topic_of_decision",
]

METADATA_BYTES_MAX: Final = 4096
"""The brokers' default of offset.metadata.max.bytes."""
_FORM: Final = "barnabas-sink-2"
_FORM_1: Final = "barnabas-sink-1"
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_EPOCH_DIGITS: Final = 3
"""Three digits hold the largest epoch, 32767."""
NO_RUN: Final = "ended"
"""The run of a driver that belongs to no run, as in `end_query`."""
NO_BATCH: Final = -1
"""The batch of a decision that only names superseded drivers. The decision is committed as offset 0, since offsets are
not negative; a decision about batch 0 takes precedence."""


class DamagedDecision(BarnabasError):
    """The group has offsets that no sink has committed."""


class Transaction(NamedTuple):
    """A transaction that a task has left open."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Decision(NamedTuple):
    """The transactions of `run` that are committed with the batch."""

    batch: int
    run: str
    transactions: tuple[Transaction, ...]
    drivers: tuple[str, ...] = ()
    """The drivers that have written or were superseded by the decision, the last writer last, as prefixes of runs."""
    rows: int = 0
    plan: str = ""
    """The mark of the batch's plan (`BatchPlan.mark`)."""

    def __contains__(self, transactional_id: object) -> bool:
        return any(each.transactional_id == transactional_id for each in self.transactions)


def encode_decision(
    decision: Decision, prefix: str, topic: str, partition_count: int
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets to commit for a decision. All transactional ids of the run begin with `prefix`. Raises
    UsageError for more tasks than the partitions of the topic have room for."""
    head_bytes = len(_head(decision, 9999, 9999))
    lines: list[list[str]] = [[]]
    used, previous_worker = head_bytes, ""
    for (worker, number), transaction in sorted(
        ((_worker_and_number(each, prefix), each) for each in decision.transactions), key=lambda named: named[0][0]
    ):
        entry = _entry("" if worker == previous_worker else worker, number, transaction)
        if used + len(entry) + 1 > METADATA_BYTES_MAX:
            entry = _entry(worker, number, transaction)
            lines.append([])
            used = head_bytes
        lines[-1].append(entry)
        used += len(entry) + 1
        previous_worker = worker
    if len(lines) > partition_count:
        raise UsageError(
            f"a batch of {len(decision.transactions)} tasks needs {len(lines)} partitions to note its decision at,"
            f" topic {topic} has {partition_count}: write with fewer tasks (coalesce), or give the topic more"
            " partitions"
        )
    return {
        TopicPartition(topic, index): OffsetAndMetadata(
            max(decision.batch, 0), " ".join([_head(decision, index, len(lines)), *line])
        )
        for index, line in enumerate(lines)
    }


def decode_decision(offsets: Mapping[TopicPartition, OffsetAndMetadata], prefix: str) -> Decision | None:
    """Returns the latest decision among a group's offsets. All transactional ids begin with `prefix` and the run.
    Raises DamagedDecision."""
    if not offsets:
        return None
    batch = max(committed.offset for committed in offsets.values())
    latest = sorted(_parse(committed.metadata) for committed in offsets.values() if committed.offset == batch)
    parts = [part for part in latest if part.run != NO_RUN]
    if not parts:
        return Decision(NO_BATCH, NO_RUN, (), latest[0].drivers)
    first = parts[0]
    if (
        len({(part.run, part.drivers, part.rows, part.plan) for part in parts}) != 1
        or [part.number for part in parts] != list(range(first.part_count))
        or {part.part_count for part in parts} != {first.part_count}
    ):
        numbers = ", ".join(f"{part.number + 1} of {part.part_count}" for part in parts)
        raise _damaged(f"of batch {batch} there are parts {numbers}")
    transactions = tuple(each for part in parts for each in _transactions(part, f"{prefix}{first.run}/"))
    return Decision(batch, first.run, transactions, first.drivers, first.rows, first.plan)


def topic_of_decision(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> str:
    """Returns the topic at whose partitions the latest decision is committed. Raises DamagedDecision."""
    batch = max(committed.offset for committed in offsets.values())
    latest = [partition for partition, committed in offsets.items() if committed.offset == batch]
    return max(latest, key=lambda partition: _parse(offsets[partition].metadata).run != NO_RUN).topic


class _Part(NamedTuple):
    """The metadata of one offset, parsed."""

    number: int
    part_count: int
    run: str
    drivers: tuple[str, ...]
    rows: int
    plan: str
    entries: Sequence[str]
    form: str


def _head(decision: Decision, index: int, count: int) -> str:
    rows = f"{decision.rows}:{decision.plan}" if decision.plan else str(decision.rows)
    return f"{_FORM} {index}/{count} {decision.run} {','.join(decision.drivers)} {rows}"


def _worker_and_number(transaction: Transaction, prefix: str) -> tuple[str, str]:
    worker, _, number = transaction.transactional_id.removeprefix(prefix).rpartition(".")
    assert transaction.transactional_id.startswith(prefix), (transaction, prefix)
    assert worker, transaction
    return worker, number


def _entry(worker: str, number: str, transaction: Transaction) -> str:
    """Returns the entry of a transaction; `worker` is empty if the entry before names it."""
    tail = worker if worker and number == "0" and "." not in worker else f"{worker}.{number}"
    epoch, producer_id = _base_36(transaction.producer_epoch), _base_36(transaction.producer_id)
    return f"{tail}:{epoch:0>{_EPOCH_DIGITS}}{producer_id}"


def _base_36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits


def _parse(metadata: str) -> _Part:
    try:
        form, position, run, drivers, rows, *entries = metadata.split(" ")
        index, _, count = position.partition("/")
        if form in (_FORM, _FORM_1):
            number, _, plan = rows.partition(":")
            names = tuple(drivers.split(",")) if drivers else ()
            return _Part(int(index), int(count), run, names, int(number), plan, entries, form)
    except ValueError:
        pass
    raise _damaged(f"{metadata[:60]!r} is no decision")


def _transactions(part: _Part, prefix: str) -> Iterator[Transaction]:
    worker = ""
    for entry in part.entries:
        try:
            if part.form == _FORM_1:
                tail, producer_id, epoch = entry.rsplit(":", 2)
                yield Transaction(prefix + tail, int(producer_id), int(epoch))
                continue
            tail, digits = entry.rsplit(":", 1)
            name, dot, number = tail.rpartition(".")
            worker = (name if dot else tail) or worker
            if not worker:
                raise ValueError
            producer_id, epoch = digits[_EPOCH_DIGITS:], digits[:_EPOCH_DIGITS]
            yield Transaction(f"{prefix}{worker}.{number if dot else 0}", int(producer_id, 36), int(epoch, 36))
        except ValueError:
            raise _damaged(f"{entry[:60]!r} is no transaction") from None


def _damaged(reason: str) -> DamagedDecision:
    return DamagedDecision(
        f"the sink's decision cannot be read: {reason}; something else has committed offsets for its group, which must"
        " be the sink's alone"
    )
