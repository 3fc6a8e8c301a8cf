"""`barnabas doctor` finds out why a client cannot connect, `barnabas cluster doctor` what is wrong with a cluster."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

from barnabas.cli.cluster.health.findings import clock_findings, findings
from barnabas.cli.cluster.health.state import cluster_state
from barnabas.cli.framework.app import App, Option
from barnabas.cli.framework.options import Bootstrap, Client, Cluster, Json, Profile
from barnabas.cli.framework.output import print_json
from barnabas.cli.framework.resources import plural
from barnabas.client.diagnosis.checks import FAILED, OK, WARNING, Check, diagnose, hasty_settings
from barnabas.client.diagnosis.round_trip import clocks_ahead_ms
from barnabas.errors import ClientError, KafkaError

app = App("Say why a client cannot connect.")

_AGAIN_S: Final = 0.5
"""The pause before the cluster is looked at again."""
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
    cluster = Cluster(bootstrap, timeout, client, profile)
    address = cluster.address()
    clock = "" if write else "; --write also tries a record and the clock"
    return _report(
        diagnose(address, cluster.settings(), timeout_s=timeout, write=write),
        address,
        json,
        bad=f"clients cannot work with {address} like this",
        good=f"all is well with {address}{clock}",
    )


def cluster_doctor(
    write: Annotated[
        bool, Option(help="Also write a record to each broker, in a temporary topic, and compare the brokers' clocks.")
    ] = False,
    wait: Annotated[
        float, Option(metavar="SECONDS", minimum=0.0, help="Look again for so long, until nothing fails.")
    ] = 0.0,
    bootstrap: Bootstrap = None,
    timeout: Annotated[float, Option(metavar="SECONDS", minimum=0.1, help="For each request.")] = 5.0,
    client: Client = None,
    profile: Profile = None,
    json: Json = False,
) -> int:
    """Find what is wrong with the cluster, and say what to do: brokers, controller, registry, replicas, leaders.

    Each finding comes with its evidence and a way out. Exit code 1 if something has failed; a warning is no failure.
    That clients reach each broker is tried from here; `barnabas doctor` shows these checks in full.
    """
    cluster = Cluster(bootstrap, timeout, client, profile)
    address = cluster.address()
    return _report(
        _when_well(cluster, write=write, until=time.monotonic() + wait)
        if wait
        else _cluster_checks(cluster, write=write),
        address,
        json,
        bad=f"the cluster at {address} needs help",
        good=f"nothing has failed in the cluster at {address}",
    )


def _when_well(cluster: Cluster, *, write: bool, until: float) -> Sequence[Check]:
    """Returns the checks of the first time when none has failed, or of the last one before `until`."""
    while True:
        try:
            checks = list(_cluster_checks(cluster, write=write))
        except (ClientError, KafkaError):
            if time.monotonic() >= until:
                raise
        else:
            if time.monotonic() >= until or not any(check.status == FAILED for check in checks):
                return checks
        time.sleep(_AGAIN_S)


def _cluster_checks(cluster: Cluster, *, write: bool) -> Iterator[Check]:
    """Yields the failures to connect, and then the checks of the cluster."""
    settings, timeout_s = cluster.settings(), cluster.timeout
    passed: Counter[str] = Counter()
    unreachable: list[Check] = []
    for check in diagnose(cluster.address(), settings, timeout_s=timeout_s):
        if check.status == OK:
            passed[check.name] += 1
        elif check.name == "advertised":
            unreachable.append(check)
        elif check.name not in ("install", "controller"):
            yield check
    if not passed["metadata"]:
        return
    if passed["advertised"]:
        yield Check("advertised", plural(passed["advertised"], "broker"), OK, "reachable from here")
    with cluster.admin() as admin:
        state = cluster_state(admin, settings, timeout_s=timeout_s)
    live = tuple(f"broker {node_id} at " for node_id in state.live)
    yield from (check for check in unreachable if check.target.startswith(live))  # the address is not why others fail
    yield from findings(state)
    if write:
        try:
            ahead = clocks_ahead_ms(hasty_settings(settings, cluster.address(), timeout_s), state.live, timeout_s)
        except (ClientError, KafkaError) as error:
            yield Check("clock", "temporary topic", FAILED, str(error), "see the brokers' logs")
        else:
            yield from clock_findings(ahead)


def _report(checks: Iterable[Check], address: str, as_json: bool, *, bad: str, good: str) -> int:
    """Prints each check as it is made, and returns the exit code."""
    made: list[Check] = []
    for check in checks:
        made.append(check)
        if not as_json:
            _print(check)
    failed = [check for check in made if check.status == FAILED]
    if as_json:
        print_json({"ok": not failed, "bootstrap": address, "checks": [check._asdict() for check in made]})
    elif failed:
        print(f"\n{len(failed)} of {len(made)} checks failed; {bad}")
    else:
        warnings = len([check for check in made if check.status == WARNING])
        print(f"\n{good}" + (f"; {plural(warnings, 'warning')}" if warnings else ""))
    return 1 if failed else 0


def _print(check: Check) -> None:
    elapsed = f" ({check.elapsed_ms:.1f} ms)" if check.elapsed_ms else ""
    print(f"{_MARKS[check.status]}  {check.name:<12}  {check.target}: {check.detail}{elapsed}")
    if check.hint:
        print(f"      {'':<12}  {check.hint}")
    sys.stdout.flush()
