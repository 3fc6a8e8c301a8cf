"""The flights as records, and the extras that they need."""

import json

import pytest

from barnabas.errors import UsageError
from barnabas.pipeline.demo.flights import checksum, flight_id, read_flights


def test_flights_as_records() -> None:
    flights = read_flights(3)
    assert [flight_id(flight.value) for flight in flights] == [0, 1, 2]
    assert flights[0].key == b"UA"
    assert flights[0].timestamp == 1357035300000, "2013-01-01 05:15 in New York"
    body = json.loads(flights[0].value)
    assert (body["flight"], body["origin"], body["dep_delay"], body["time_hour"]) == (
        1545,
        "EWR",
        2,
        "2013-01-01T10:00:00Z",
    )
    assert len({checksum(*flight) for flight in flights}) == 3
    assert flight_id(b"no flight") == -1


def test_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.pipeline.demo.flights.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'barnabas\[demo\]'"):
        read_flights(1)
