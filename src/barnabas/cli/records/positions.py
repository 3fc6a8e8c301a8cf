"""Parses and resolves the values of --offset: `beginning`, `end`, `stored`, 123, -10, `s@time`, `e@time`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.errors import UsageError
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas import Consumer

__all__ = ["Start", "parse_starts", "parse_time", "start_positions", "stop_positions"]

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_NAMES: Final = {
    "beginning": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
    "stored": "stored",
}


DIGITS_MAX: Final = 19
"""The most digits of an offset or a time, an int64."""


class Start(NamedTuple):
    """kind: earliest, latest, stored, offset (value), tail (value records before the end), time (value ms)."""

    kind: str
    value: int = 0


def parse_time(text: str, now_ms: int) -> int:
    """Returns milliseconds since the epoch from `1357016400000`, `2013-01-01T05:15:00Z`, `2013-01-01`, `now`, `-1h`.

    Without a zone it is UTC, as Kafka's own tools take it. Raises UsageError.
    """
    text = text.strip()
    if text == "now":
        return now_ms
    if text.isdecimal() and len(text) <= DIGITS_MAX:
        return int(text)
    if (
        text[:1] == "-"
        and len(text) <= DIGITS_MAX
        and text[-1:] in _UNITS
        and text[1:-1].replace(".", "", 1).isdecimal()
    ):
        return now_ms - int(float(text[1:-1]) * _UNITS[text[-1]] * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        way_out = "write milliseconds, 2013-01-01T05:15:00Z, 2013-01-01, now, or -1h"
        raise UsageError(f"time {text!r} is none; {way_out}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def parse_starts(texts: Sequence[str], now_ms: int) -> tuple[Start, int | None]:
    """Returns (start, end time in ms or None) from the values of -o. Raises UsageError."""
    start: Start | None = None
    end: int | None = None
    for text in texts:
        if text.startswith("e@"):
            end = parse_time(text[2:], now_ms)
        elif start is not None:
            raise UsageError(f"-o {text}: one start is enough; only e@TIME may stand beside it")
        else:
            start = _parse_start(text, now_ms)
    return start or Start("earliest"), end


def _parse_start(text: str, now_ms: int) -> Start:
    if text in _NAMES:
        return Start(_NAMES[text])
    if text.startswith("s@"):
        return Start("time", parse_time(text[2:], now_ms))
    digits = text.removeprefix("-")
    if not digits.isdecimal() or len(digits) > DIGITS_MAX:
        raise UsageError(f"-o {text}: must be beginning, end, stored, an offset, -N, s@TIME or e@TIME")
    return Start("tail", int(digits)) if text.startswith("-") else Start("offset", int(digits))


def start_positions(
    consumer: "Consumer", partitions: Sequence[TopicPartition], start: Start
) -> dict[TopicPartition, int]:
    """Returns the first offset to read of each partition, always within its log."""
    low, high = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    if start.kind == "time":
        return _offsets_at(consumer, high, start.value)
    choices: dict[str, Callable[[TopicPartition], int]] = {
        "earliest": lambda tp: low[tp],
        "latest": lambda tp: high[tp],
        "stored": lambda tp: low[tp],  # for partitions without a commit
        "offset": lambda tp: start.value,
        "tail": lambda tp: high[tp] - start.value,
    }
    wanted = choices[start.kind]
    return {tp: min(max(wanted(tp), low[tp]), high[tp]) for tp in partitions}


def stop_positions(
    consumer: "Consumer", partitions: Sequence[TopicPartition], end_ms: int | None
) -> dict[TopicPartition, int]:
    """Returns the offsets at which reading stops: the end offsets, or those of the first records from `end_ms` on."""
    ends = consumer.end_offsets(partitions)
    return ends if end_ms is None else _offsets_at(consumer, ends, end_ms)


def _offsets_at(consumer: "Consumer", ends: Mapping[TopicPartition, int], time_ms: int) -> dict[TopicPartition, int]:
    found = consumer.offsets_for_times(dict.fromkeys(ends, time_ms))
    return {tp: end if (at := found[tp]) is None else at.offset for tp, end in ends.items()}
