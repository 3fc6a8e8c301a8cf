"""`barnabas doctor`."""

import json
from collections.abc import Iterator

import pytest

from barnabas.cli.cluster import doctor
from barnabas.client.diagnosis.checks import Check
from barnabas.errors import BrokerUnreachable
from cli.conftest import Run


def test_a_doctor_who_finds_nothing(barnabas: Run) -> None:
    done = barnabas("doctor", "--write", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    names = [check["name"] for check in report["checks"]]
    assert names == ["install", "dns", "tcp", "versions", "metadata", "advertised", "produce", "clock"]


@pytest.mark.parametrize(("wait", "code", "looks"), [("60", 0, 3), ("0", 1, 1)])
def test_the_doctor_of_a_cluster_waits_until_it_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wait: str, code: int, looks: int
) -> None:
    looked = 0

    def checks(*_arguments: object, **_options: object) -> Iterator[Check]:
        nonlocal looked
        looked += 1
        if looked == 2:
            raise BrokerUnreachable("it is gone again")
        yield Check("brokers", "broker 2", "failed" if looked == 1 else "ok", "as it is", "")

    monkeypatch.setattr(doctor, "_cluster_checks", checks)
    monkeypatch.setattr(doctor, "_AGAIN_S", 0.0)
    from barnabas.cli.cluster.cluster import app

    assert app.run("barnabas cluster", ["doctor", "--wait", wait, "--bootstrap", "127.0.0.1:1", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], len(report["checks"]), looked) == (code == 0, 1, looks)
