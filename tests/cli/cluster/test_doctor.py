"""`barnabas doctor`."""

import json

from cli.conftest import Run


def test_a_doctor_who_finds_nothing(barnabas: Run) -> None:
    done = barnabas("doctor", "--write", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    names = [check["name"] for check in report["checks"]]
    assert names == ["install", "dns", "tcp", "versions", "metadata", "advertised", "produce", "clock"]
