"""The demo of flights, from a clean topic and continued."""

import json
from pathlib import Path

from cli.conftest import run_barnabas


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
