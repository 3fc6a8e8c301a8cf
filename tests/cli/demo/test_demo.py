"""The demo: flights as records, a broker of its own, missing extras."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnabas.errors import UsageError
from barnabas.pipeline.demo.flights import checksum, flight_id, read_flights
from cli.conftest import run_barnabas


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


def test_a_demo_and_its_continuation(tmp_path: Path) -> None:
    def demo(*arguments: str) -> dict[str, object]:
        done = run_barnabas(
            "demo", "flights", "--json", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), *arguments
        )
        assert done.returncode == 0, done.stderr
        report: dict[str, object] = json.loads(done.stdout)
        return report

    none = {"missing": 0, "doubled": 0, "changed": 0, "offset_gaps": 0}
    first = demo("--limit", "2000")
    assert (first["run"], first["produced"]["records"], first["consumed"]["records"]) == ("clean", 2000, 2000)  # type: ignore[index]
    second = demo("--limit", "3000")
    assert (second["run"], second["produced"]["records"], second["consumed"]["records"]) == ("continued", 1000, 3000)  # type: ignore[index]
    third = demo("--limit", "500", "--clean")
    assert (third["run"], third["consumed"]["records"]) == ("clean", 500)  # type: ignore[index]
    for report in (first, second, third):
        assert (report["checks"], report["lag"], report["ok"]) == (none, 0, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_no_broker_is_left_behind(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import sys, time; from pathlib import Path; from barnabas.cli.framework.child_broker import ChildBroker\n"
        "with ChildBroker(Path(sys.argv[1]), '127.0.0.1:0') as child: print(child.address, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        host, port = process.stdout.readline().strip().split(":")
        process.send_signal(number)
        process.wait(60)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), 30).close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            pass  # it was closing its listener just then: look again
        time.sleep(0.02)
    pytest.fail("the broker is still there")


def test_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.pipeline.demo.flights.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'barnabas\[demo\]'"):
        read_flights(1)
