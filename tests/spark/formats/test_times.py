"""Days and times as JSON has them."""

from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.formats.times import parse_date, parse_timestamp


@given(st.dates())
def test_days(day: date) -> None:
    assert parse_date(day.isoformat()) == (day - date(1970, 1, 1)).days


@given(st.datetimes(timezones=st.timezones()))
def test_micros(time: datetime) -> None:
    offset = time.utcoffset()
    if offset is None or offset.total_seconds() % 60:
        return
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    assert (
        parse_timestamp(time.isoformat(), "UTC")
        == (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    )
