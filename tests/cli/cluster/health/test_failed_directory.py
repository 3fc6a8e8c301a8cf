"""`barnabas cluster doctor` while one of a broker's two directories is not mounted."""

import json
from pathlib import Path

from barnabas.testing import Broker
from broker.cluster.test_lost_directory import brokers as brokers
from broker.cluster.test_lost_directory import fill, in_sync, wait_for
from cli.conftest import run_barnabas


def test_the_directory_is_the_reason_why_its_replicas_are_not_in_sync(
    brokers: dict[int, Broker], tmp_path: Path
) -> None:
    one = brokers[1]
    kept, gone = fill(one, min_insync_replicas=1, replicas=[1, 2])
    (tmp_path / "2b").rename(tmp_path / "unmounted")
    wait_for(lambda: in_sync(one) == [{1, 2} if number in kept else {1} for number in range(len(kept) + len(gone))])
    done = run_barnabas("cluster", "doctor", "--json", "--bootstrap", one.bootstrap_servers)
    assert done.returncode == 1, done.stdout
    failed = {check["name"]: check for check in json.loads(done.stdout)["checks"] if check["status"] == "failed"}
    assert failed.keys() == {"directory", "replica"}
    assert failed["directory"]["target"] == f"broker 2: {tmp_path / '2b'}"
    names = ", ".join(f"t-{number}" for number in sorted(gone))
    assert failed["replica"]["detail"].startswith(names)
    assert failed["replica"]["detail"].endswith(" in sync: their log directory has failed")
