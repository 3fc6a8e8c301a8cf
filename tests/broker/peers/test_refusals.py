"""What a broker remembers of others that do not belong to its cluster."""

import logging

import pytest

from barnabas.broker.peers.identity import PLACE_MAX, PeerIdentity, place_of
from barnabas.broker.peers.refusals import KEPT_MAX, KEPT_MS, Refusals
from barnabas.broker.process.failure_log import FailureLog
from barnabas.metadata.refused_broker import RefusedBroker
from hand_clock import HandClock

COPY = PeerIdentity("c", 1, -1, "1.0", place="machine m, data in /copy")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def refusals(clock: HandClock) -> Refusals:
    return Refusals(FailureLog(logging.getLogger("test.refusals"), clock), clock)


def test_one_that_comes_again_is_counted_and_logged_once(
    refusals: Refusals, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        refusals.note(COPY, "10.0.0.7", "no")
        clock.now += 60
    assert refusals.kept() == [RefusedBroker(1, "10.0.0.7", COPY.place, "no", 100, 1_700_001_000_000 + 99 * 60_000)]
    assert caplog.messages == ["refused broker 1 from 10.0.0.7 (machine m, data in /copy): no"]


def test_they_are_forgotten_after_a_day(refusals: Refusals, clock: HandClock, caplog: pytest.LogCaptureFixture) -> None:
    refusals.note(COPY, "10.0.0.7", "no")
    clock.now += KEPT_MS / 1000 - 20
    refusals.note(COPY._replace(place=""), "10.0.0.7", "no")
    assert [str(each) for each in refusals.kept()] == [
        "broker 1 from 10.0.0.7 (machine m, data in /copy)",
        "broker 1 from 10.0.0.7",
    ]
    clock.now += 20
    assert [each.place for each in refusals.kept()] == [""]
    refusals.note(COPY, "10.0.0.7", "no")
    assert len(caplog.messages) == 3, "it is told anew"


def test_many_take_no_memory_and_few_lines(refusals: Refusals, caplog: pytest.LogCaptureFixture) -> None:
    refusals.note(COPY, "10.0.0.7", "no")
    for number in range(10_000):
        refusals.note(COPY._replace(node_id=number), "10.0.0.8", "no")
        refusals.note(COPY, "10.0.0.7", "no")  # comes all the time, and is not pushed out
    kept = refusals.kept()
    assert [each.broker for each in kept] == [*range(10_000 - KEPT_MAX + 1, 10_000), 1]
    assert kept[-1].times == 10_001
    assert len(refusals._kept) == KEPT_MAX
    assert len(caplog.messages) == 1, "at intervals only"


def test_hostile_texts_are_short_and_on_one_line(refusals: Refusals, caplog: pytest.LogCaptureFixture) -> None:
    hostile = "\n[2026] ERROR all is lost\x1b[2J\u202e" + "x" * 100_000
    refusals.note(COPY._replace(place=hostile), "10.0.0.7", hostile)
    (kept,) = refusals.kept()
    assert kept.place.startswith("\\n[2026] ERROR all is lost\\x1b[2J\\u202ex")
    assert all(text.isprintable() and len(text) < 1000 for text in (kept.place, kept.problem, *caplog.messages))


def test_a_place_fits_into_an_introduction() -> None:
    assert place_of(["data"]).endswith("/data")
    assert len(place_of(["x" * 10_000])) == PLACE_MAX
    assert "\\udcff" in place_of(["/\udcff"]), "the name of a file need not be UTF-8"
