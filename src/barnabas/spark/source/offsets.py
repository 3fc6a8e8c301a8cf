"""Offsets as Spark writes them: the JSON of options, and what a streaming query keeps in its checkpoint.

`{"topic": {"0": 23}}` is that of Spark's Kafka connector. What a checkpoint has besides stands under names that no
topic can have: `@start` (where partitions begin that are new in this batch; all of them in the first one), `@plan`
(what the tasks are made of, so that a replay makes the same ones), `@ids` (topic ids: a topic that was deleted and
made again is another one), `@epochs` (leader epochs: a log that was cut below what was read has ended them earlier) and
`@bytes` (the mean size of each partition's records, where tasks are cut by that).
The latest offsets, which Spark shows in its progress reports and keeps nowhere, have `@behind` besides.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas.errors import UsageError
from barnabas.types import TopicPartition

__all__ = [
    "BEHIND",
    "EARLIEST",
    "LATEST",
    "Plan",
    "StreamOffset",
    "nested",
    "parse_offsets",
    "parse_partitions",
    "parse_stream_offset",
    "parse_times",
    "partitions_text",
]

LATEST: Final = -1
EARLIEST: Final = -2
_OFFSET_MAX: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1

_START: Final = "@start"
_PLAN: Final = "@plan"
_IDS: Final = "@ids"
_EPOCHS: Final = "@epochs"
_BYTES: Final = "@bytes"
BEHIND: Final = "@behind"


class Plan(NamedTuple):
    """The options that cut ranges of offsets into tasks; 0: no limit."""

    min_partitions: int = 0
    max_records: int = 0


class StreamOffset(NamedTuple):
    """The offsets up to which a query has read, or will have with this batch."""

    offsets: Mapping[TopicPartition, int]
    start: Mapping[TopicPartition, int] = {}
    plan: Plan = Plan()
    ids: Mapping[str, str] = {}
    is_initial: bool = False
    """The query has not read anything: it may begin at other offsets the next time."""
    epochs: Mapping[TopicPartition, int] = {}
    """Leader epochs: no record before the offset is of a later one."""
    record_bytes: Mapping[TopicPartition, int] = {}
    """The mean size of records, where tasks are cut by bytes."""

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = nested(self.offsets)
        if self.start or self.is_initial:
            document[_START] = None if self.is_initial else nested(self.start)
        if any(self.plan):
            document[_PLAN] = {name: value for name, value in zip(Plan._fields, self.plan) if value}
        if self.ids:
            document[_IDS] = dict(sorted(self.ids.items()))
        if self.epochs:
            document[_EPOCHS] = nested(self.epochs)
        if self.record_bytes:
            document[_BYTES] = nested(self.record_bytes)
        return document


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Returns the offsets under their topics, sorted, with texts for keys as in JSON."""
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


# --- options ----------------------------------------------------------------------------------------------------------


def parse_partitions(text: str, option: str) -> tuple[TopicPartition, ...]:
    """Of `{"topic": [0, 1]}`. Raises UsageError."""
    example = '{"orders": [0, 1]}'
    found: dict[TopicPartition, None] = {}
    for topic, numbers in _document(text, option, example).items():
        if not isinstance(numbers, list):
            raise UsageError(f"option {option}: {topic!r} needs a list of partitions, as in {example}")
        for number in numbers:
            if not _is_int(number, 0, _PARTITION_MAX):
                raise _no_partition(f"option {option}", number, topic)
            found[TopicPartition(topic, number)] = None
    if not found:
        raise UsageError(f"option {option} names no partition; write {example}")
    return tuple(sorted(found))


def parse_offsets(text: str, option: str) -> dict[TopicPartition, int]:
    """Of `{"topic": {"0": 23}}`; -1 is the end and -2 the beginning. Raises UsageError."""
    example = '{"orders": {"0": 23, "1": -2}}'
    return _offsets(_document(text, option, example), f"option {option}", example, EARLIEST)


def _no_partition(what: str, name: object, topic: str) -> UsageError:
    return UsageError(f"{what}: {name!r} is no partition of {topic!r}; they are numbers from 0 on")


def parse_times(text: str, option: str) -> dict[TopicPartition, int]:
    """Milliseconds for each partition, written as offsets are. Raises UsageError."""
    example = '{"orders": {"0": 1735689600000}}'
    return _offsets(_document(text, option, example), f"option {option}", example, 0)


def _document(text: str, what: str, example: str) -> dict[str, Any]:
    try:
        document = json.loads(text, object_pairs_hook=_no_pair_twice)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"option {what} is not readable JSON ({error}); write it as {example}") from None
    if not isinstance(document, dict):
        raise UsageError(f"option {what} must be a JSON object, as in {example}")
    return document


def _no_pair_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _offsets(document: Mapping[str, Any], what: str, example: str, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            raise UsageError(f"{what}: {topic!r} needs an object of partitions, as in {example}")
        for name, value in partitions.items():
            number = _number(name)
            if number is None:
                raise _no_partition(what, name, topic)
            if not _is_int(value, least, _OFFSET_MAX):
                raise UsageError(f"{what}: {value!r} for {topic}-{number} is not a number from {least} to 2^63-1")
            found[TopicPartition(topic, number)] = value
    return found


def _number(name: str) -> int | None:
    if not (name.isascii() and name.isdigit() and len(name) <= 10) or int(name) > _PARTITION_MAX:
        return None
    return int(name)


def _is_int(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


# --- the checkpoint ---------------------------------------------------------------------------------------------------


def parse_stream_offset(document: Mapping[str, Any]) -> StreamOffset:
    """Parses an offset of a checkpoint, written by `StreamOffset.to_json` or by Spark's Kafka connector. Raises
    UsageError."""
    extras = {name: value for name, value in document.items() if name.startswith("@")}
    unknown = extras.keys() - {_START, _PLAN, _IDS, _EPOCHS, _BYTES, BEHIND}
    if unknown:
        raise _unreadable(f"{sorted(unknown)} is not known; a newer version of Barnabas may have written it")
    topics = {name: value for name, value in document.items() if name not in extras}
    what, example = "the offsets in the query's checkpoint", '{"orders": {"0": 23}}'
    start = extras.get(_START, {})
    is_initial = _START in extras and start is None
    epochs, record_bytes = extras.get(_EPOCHS, {}), extras.get(_BYTES, {})
    for name, part in ((_START, {} if is_initial else start), (_EPOCHS, epochs), (_BYTES, record_bytes)):
        if not isinstance(part, dict):
            raise _unreadable(f"{name} is {part!r}")
    return StreamOffset(
        _offsets(topics, what, example, 0),
        {} if is_initial else _offsets(start, what, example, 0),
        _plan(extras.get(_PLAN, {})),
        _ids(extras.get(_IDS, {})),
        is_initial,
        _offsets(epochs, what, example, 0),
        _offsets(record_bytes, what, example, 0),
    )


def _plan(document: Any) -> Plan:
    if not isinstance(document, dict) or not all(
        name in Plan._fields and _is_int(value, 0, _OFFSET_MAX) for name, value in document.items()
    ):
        raise _unreadable(f"{_PLAN} is {document!r}")
    return Plan(**document)


def _ids(document: Any) -> dict[str, str]:
    if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
        raise _unreadable(f"{_IDS} is {document!r}")
    return document


def _unreadable(reason: str) -> UsageError:
    return UsageError(
        f"the offsets in the query's checkpoint cannot be read: {reason}. Restore the checkpoint's directory, or begin"
        " with a new one and startingOffsets"
    )


def partitions_text(partitions: Iterable[TopicPartition], most: int = 10) -> str:
    """Returns a list of partitions for a message."""
    named = [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
    more = len(named) - most
    return ", ".join(named[:most]) + (f" and {more} more" if more > 0 else "")
