"""What a sink has decided, and how that is kept as committed offsets of a group.

The offset is the number of the batch; the note beside it names the transactions that are committed with it. Brokers
take 4,096 bytes for a note: a longer list goes on at the next partition of the same topic, all in one transaction.

A note has a head and a word for each transaction: what its id has after the run, `:`, three digits of its epoch and
those of its producer, both in base 36. Ids end in the name of a worker and a number (`worker_names`): the name is left
out where it is that of the word before, and the number where it is 0. So 200 tasks fit into one note, whoever has done
them and for how long. Notes of the first form (`_FORM_1`), which have all of it in each word, are still read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.errors import BarnabasError, UsageError
from barnabas.types import TopicPartition

__all__ = [
    "NOBODY",
    "NOTE_BYTES_MAX",
    "NOTHING",
    "DamagedDecision",
    "Decision",
    "Transaction",
    "notes_of",
    "place_of",
    "read_decision",
]

NOTE_BYTES_MAX: Final = 4096
"""offset.metadata.max.bytes, as brokers have it by default."""
_FORM: Final = "barnabas-sink-2"
_FORM_1: Final = "barnabas-sink-1"
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_EPOCH_DIGITS: Final = 3
"""Enough for 32767."""
NOBODY: Final = "ended"
"""A driver that has no run."""
NOTHING: Final = -1
"""The batch of a decision by nobody: it only names drivers whose time is over. Noted at offset 0, since offsets are not
negative; there any other note goes before it."""


class DamagedDecision(BarnabasError):
    """The group's offsets are not what a sink has written."""


class Transaction(NamedTuple):
    """One that a task has left open, and what ends it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Decision(NamedTuple):
    """The transactions of `run` that are committed with the batch, the drivers that have said so, in their order (the
    beginnings of their runs' names), how many rows the batch has, and a mark of what it was planned to be."""

    batch: int
    run: str
    transactions: tuple[Transaction, ...]
    drivers: tuple[str, ...] = ()
    rows: int = 0
    plan: str = ""

    def __contains__(self, transactional_id: object) -> bool:
        return any(each.transactional_id == transactional_id for each in self.transactions)


def notes_of(
    decision: Decision, prefix: str, topic: str, partition_count: int
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit. `prefix` is what all ids of the run begin with. Raises UsageError for more tasks than the
    topic has room for."""
    head_bytes = len(_head(decision, 9999, 9999))
    lines: list[list[str]] = [[]]
    used, before = head_bytes, ""
    for (worker, number), each in sorted(
        ((_named(each, prefix), each) for each in decision.transactions), key=lambda named: named[0][0]
    ):
        word = _word("" if worker == before else worker, number, each)
        if used + len(word) + 1 > NOTE_BYTES_MAX:
            word = _word(worker, number, each)
            lines.append([])
            used = head_bytes
        lines[-1].append(word)
        used += len(word) + 1
        before = worker
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


def read_decision(offsets: Mapping[TopicPartition, OffsetAndMetadata], prefix: str) -> Decision | None:
    """The latest that a group's offsets tell of; `prefix` without the run. Raises DamagedDecision."""
    if not offsets:
        return None
    batch = max(committed.offset for committed in offsets.values())
    newest = sorted(_parsed(committed.metadata) for committed in offsets.values() if committed.offset == batch)
    notes = [note for note in newest if note.run != NOBODY]
    if not notes:
        return Decision(NOTHING, NOBODY, (), newest[0].drivers)
    count = notes[0].parts
    if (
        len({(note.run, note.drivers, note.rows, note.plan) for note in notes}) != 1
        or [note.part for note in notes] != list(range(count))
        or {n.parts for n in notes} != {count}
    ):
        raise _damaged(f"of batch {batch} there are parts {', '.join(f'{n.part + 1} of {n.parts}' for n in notes)}")
    run, drivers = notes[0].run, notes[0].drivers
    found = tuple(each for note in notes for each in _transactions(note, f"{prefix}{run}/"))
    return Decision(batch, run, found, drivers, notes[0].rows, notes[0].plan)


def place_of(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> str:
    """The topic of the latest. Raises DamagedDecision."""
    batch = max(committed.offset for committed in offsets.values())
    there = [partition for partition, committed in offsets.items() if committed.offset == batch]
    return max(there, key=lambda partition: _parsed(offsets[partition].metadata).run != NOBODY).topic


class _Note(NamedTuple):
    part: int
    parts: int
    run: str
    drivers: tuple[str, ...]
    rows: int
    plan: str
    words: Sequence[str]
    form: str


def _head(decision: Decision, index: int, count: int) -> str:
    rows = f"{decision.rows}:{decision.plan}" if decision.plan else str(decision.rows)
    return f"{_FORM} {index}/{count} {decision.run} {','.join(decision.drivers)} {rows}"


def _named(transaction: Transaction, prefix: str) -> tuple[str, str]:
    """What its id has after the prefix: a worker, and a number."""
    worker, _, number = transaction.transactional_id.removeprefix(prefix).rpartition(".")
    assert transaction.transactional_id.startswith(prefix), (transaction, prefix)
    assert worker, transaction
    return worker, number


def _word(worker: str, number: str, transaction: Transaction) -> str:
    """Without the worker, where that is told already."""
    tail = worker if worker and number == "0" and "." not in worker else f"{worker}.{number}"
    epoch, producer_id = _base_36(transaction.producer_epoch), _base_36(transaction.producer_id)
    return f"{tail}:{epoch:0>{_EPOCH_DIGITS}}{producer_id}"


def _base_36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits


def _parsed(note: str) -> _Note:
    try:
        form, place, run, drivers, rows, *words = note.split(" ")
        index, _, count = place.partition("/")
        if form in (_FORM, _FORM_1):
            number, _, plan = rows.partition(":")
            names = tuple(drivers.split(",")) if drivers else ()
            return _Note(int(index), int(count), run, names, int(number), plan, words, form)
    except ValueError:
        pass
    raise _damaged(f"{note[:60]!r} is no decision")


def _transactions(note: _Note, prefix: str) -> Iterator[Transaction]:
    worker = ""
    for word in note.words:
        try:
            if note.form == _FORM_1:
                tail, producer_id, epoch = word.rsplit(":", 2)
                yield Transaction(prefix + tail, int(producer_id), int(epoch))
                continue
            tail, digits = word.rsplit(":", 1)
            name, dot, number = tail.rpartition(".")
            worker = (name if dot else tail) or worker
            if not worker:
                raise ValueError
            producer_id, epoch = digits[_EPOCH_DIGITS:], digits[:_EPOCH_DIGITS]
            yield Transaction(f"{prefix}{worker}.{number if dot else 0}", int(producer_id, 36), int(epoch, 36))
        except ValueError:
            raise _damaged(f"{word[:60]!r} is no transaction") from None


def _damaged(why: str) -> DamagedDecision:
    return DamagedDecision(
        f"the sink's decision cannot be read: {why}; something else has committed offsets for its group, which must be"
        " the sink's alone"
    )
