"""Parses single times and dates of JSON, with the same results as Arrow's parser of whole columns."""

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

from barnabas.errors import UsageError

__all__ = ["parse_date", "parse_local_timestamp", "parse_timestamp", "time_zone"]

_DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 -- a local time, which gets its zone later
_DAYS_IN: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@cache
def time_zone(name: str) -> ZoneInfo:
    """Returns the zone of option timeZone. Raises UsageError."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"option timeZone={name!r} is no time zone; write UTC or Europe/Berlin") from None


def parse_date(text: str) -> int:
    """Returns the days from 1970 to a date such as `2013-01-31`. Raises ValueError."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no date such as 2013-01-31")
    year, month, day = map(int, match.groups())
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS_IN[month - 1] + (month == 2 and _is_leap(year)):
        raise ValueError(f"{text[:40]!r} is not in the calendar")
    # days of the proleptic Gregorian calendar, with years that begin in March; Python's date does not have the year 0
    before = year - (month <= 2)
    era, of_era = divmod(before, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def parse_local_timestamp(text: str) -> int:
    """Returns the microseconds from 1970 to a time without a zone. Raises ValueError."""
    micros, zone = _parse(text)
    if zone is not None:
        raise ValueError(f"{text[:40]!r} has a time zone, but the type is a local time")
    return micros


def parse_timestamp(text: str, default: str) -> int:
    """Returns the microseconds from 1970 to a time, in the `default` zone if the text has none. Raises ValueError."""
    micros, zone = _parse(text)
    if zone is not None:
        return micros - zone
    if default == "UTC":
        return micros
    try:
        local = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=time_zone(default))
        return (local.astimezone(UTC).replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)
    except OverflowError:
        raise ValueError(f"{text[:40]!r} is beyond the years of time zones") from None


def _parse(text: str) -> tuple[int, int | None]:
    """Returns the microseconds of the local time, and those that its zone is ahead of UTC, or None without a zone."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no time such as 2013-01-31T05:15:00.000Z")
    date, *parts, fraction, zone = match.groups()
    hour, minute, second = (int(part or 0) for part in parts)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text[:40]!r} is not on the clock")
    seconds = parse_date(date) * 86_400 + hour * 3600 + minute * 60 + second
    return seconds * 1_000_000 + int((fraction or "0")[:6].ljust(6, "0")), _zone_micros(zone)


def _zone_micros(zone: str | None) -> int | None:
    if zone is None or zone == "Z":
        return None if zone is None else 0
    digits = zone[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(f"{zone!r} is no zone")
    return (hours * 3600 + minutes * 60) * (1_000_000 if zone[0] == "+" else -1_000_000)
