"""`barnabas doctor`: finds out why a client cannot connect."""

import sys
from typing import Annotated

from barnabas.cli.framework.app import App, Option
from barnabas.cli.framework.options import Bootstrap, Client, Cluster, Json, Profile
from barnabas.cli.framework.output import print_json
from barnabas.client.diagnosis.checks import FAILED, Check, diagnose

app = App("Say why a client cannot connect.")

_MARKS = {"ok": "ok  ", "warning": "warn", "failed": "FAIL"}


@app.command("", example="barnabas doctor --bootstrap kafka.example.org:9092\nbarnabas doctor --write")
def doctor(
    write: Annotated[
        bool, Option(help="Also write and read a record in a temporary topic, and compare the clocks.")
    ] = False,
    bootstrap: Bootstrap = None,
    timeout: Annotated[float, Option(metavar="SECONDS", minimum=0.1, help="For each stage.")] = 5.0,
    client: Client = None,
    profile: Profile = None,
    json: Json = False,
) -> int:
    """Check name resolution, TCP, protocol, versions and advertised listeners, one by one.

    Exit code 1 if a check failed; each failure comes with advice.
    """
    checks: list[Check] = []
    cluster = Cluster(bootstrap, timeout, client, profile)
    address = cluster.address()
    for check in diagnose(address, cluster.settings(), timeout_s=timeout, write=write):
        checks.append(check)
        if not json:
            _print(check)
    failed = [check for check in checks if check.status == FAILED]
    if json:
        print_json({"ok": not failed, "bootstrap": address, "checks": [check._asdict() for check in checks]})
    elif failed:
        print(f"\n{len(failed)} of {len(checks)} checks failed; clients cannot work with {address} like this")
    else:
        clock = "" if write else "; --write also tries a record and the clock"
        print(f"\nall is well with {address}{clock}")
    return 1 if failed else 0


def _print(check: Check) -> None:
    elapsed = f" ({check.elapsed_ms:.1f} ms)" if check.elapsed_ms else ""
    print(f"{_MARKS[check.status]}  {check.name:<10}  {check.target}: {check.detail}{elapsed}")
    if check.hint:
        print(f"      {'':<10}  {check.hint}")
    sys.stdout.flush()
