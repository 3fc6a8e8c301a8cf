"""The replay of the flights, against a broker."""

import pytest

import barnabas
from barnabas.pipeline.demo.flights import read_flights
from barnabas.pipeline.demo.replay import Replay, replayed
from barnabas.pipeline.demo.topics import EVENTS, end_offsets, make_topics
from barnabas.testing import Broker


@pytest.fixture
def few_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all of them takes seconds."""
    flights = read_flights(3000)
    monkeypatch.setattr("barnabas.pipeline.demo.replay.read_flights", lambda: flights)


@pytest.mark.usefixtures("few_flights")
def test_a_replay_goes_on_after_its_last_whole_day() -> None:
    with Broker() as broker, barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        make_topics(admin)
        settings: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers}
        for limit, there in ((700, 0), (1500, 700), (1500, 1500)):
            assert replayed(admin) == there
            replay = Replay(settings, limit, there, 0)
            replay.start()
            replay.go_live()
            broker.wait_for(lambda replay=replay: replay.is_over, what="the replay")
            assert replay.failure is None
        values = [record.value for record in broker.records(EVENTS)]
        assert sorted(values) == sorted(flight.value for flight in replay.flights)
        assert sum(end_offsets(admin, EVENTS).values()) > 1500, "end markers of the days"
