"""One case: a query is killed, or fails, at a place of its choosing; it runs again until it is through. Readers must
have each row once, and no transaction may be open."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import barnabas

HERE = Path(__file__).resolve().parent
ROWS = 160
RUNS_MAX = 4
LIMIT_S = 200

IN_TASKS = ("mid-write", "written")
IN_COMMIT = ("before-take-over", "before-decision", "decided", "first-ended", "ended")
KINDS = {
    **dict.fromkeys(IN_TASKS, ("jvm", "worker", "raise", "broker")),
    **dict.fromkeys(IN_COMMIT, ("jvm", "raise", "broker")),
}


@dataclass(frozen=True)
class Case:
    point: str
    kind: str
    batch: int = 1
    mode: str = "two-phase"
    tasks: int = 3
    tasks_after: int = 3
    two_phase_broker: bool = True

    @classmethod
    def any_of(cls, rng: random.Random) -> Case:
        point = rng.choice((*IN_TASKS, *IN_COMMIT))
        return cls(
            point,
            rng.choice(KINDS[point]),
            rng.randrange(4),
            tasks=rng.randrange(1, 5),
            tasks_after=rng.randrange(1, 5),
            two_phase_broker=rng.random() < 0.5,
        )


@dataclass
class Report:
    case: Case
    fired: bool
    runs: int
    finished: bool
    doubled: int
    missing: int
    left_open: list[str]
    told: str = ""

    @property
    def is_exact(self) -> bool:
        return self.finished and not (self.doubled or self.missing or self.left_open)


class ServedBroker:
    """A broker process that is started again when somebody kills it."""

    def __init__(self, directory: Path, *, two_phase: bool) -> None:
        self.directory = directory
        self.address = "127.0.0.1:0"
        self._two_phase = two_phase
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(self.directory / "data")]
        command += ["--listen", self.address, "--ready-file", str(ready)]
        command += ["--set", f"transaction.two.phase.commit.enable={str(self._two_phase).lower()}"]
        command += ["--set", "offsets.topic.num.partitions=4", "--set", "transaction.state.log.num.partitions=4"]
        with (self.directory / "broker.log").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while not (ready.exists() and ready.read_text().count("\n")):
            assert self._process.poll() is None, (self.directory / "broker.log").read_text()
            assert time.monotonic() < deadline, "the broker is not ready"
            time.sleep(0.02)
        self.address = ready.read_text().splitlines()[0]
        (self.directory / "broker.pid").write_text(str(self._process.pid))

    def revive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def served(directory: Path, *, two_phase: bool) -> Iterator[ServedBroker]:
    broker = ServedBroker(directory, two_phase=two_phase)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def play(case: Case, directory: Path) -> Report:
    directory.mkdir(parents=True, exist_ok=True)
    with served(directory, two_phase=case.two_phase_broker) as broker:
        with barnabas.Admin(bootstrap_servers=broker.address) as admin:
            admin.create_topics([barnabas.NewTopic("in", 2), barnabas.NewTopic("out", 2)])
        with barnabas.Producer(bootstrap_servers=broker.address) as producer:
            producer.send_many("in", [b"%d" % number for number in range(ROWS)]).result(30)
        (directory / "order.json").write_text(json.dumps({"point": case.point, "kind": case.kind, "batch": case.batch}))
        runs, told, finished, tasks = 0, "", False, case.tasks
        while not finished and runs < RUNS_MAX:
            runs += 1
            code, said = run_query(directory, broker, case.mode, tasks)
            finished, told, tasks = code == 0, told + said, case.tasks_after
        rows = Counter(committed(broker.address))
        with barnabas.Admin(bootstrap_servers=broker.address) as admin:
            left = [found.transactional_id for found in admin.list_transactions(states=["Ongoing"])]
    missing = sum(b"%d" % number not in rows for number in range(ROWS))
    doubled = sum(rows.values()) - len(rows)
    fired = (directory / "done.json").exists()
    return Report(case, fired, runs, finished, doubled, missing, left, told)


def run_query(directory: Path, broker: ServedBroker, mode: str, tasks: int) -> tuple[int, str]:
    source = str(Path(barnabas.__file__).resolve().parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(HERE)])}
    command = [sys.executable, str(HERE / "query.py"), str(directory), broker.address, mode, str(tasks)]
    with (directory / "query.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=env)
    deadline = time.monotonic() + LIMIT_S
    try:
        while process.poll() is None and time.monotonic() < deadline:
            broker.revive()
            time.sleep(0.05)
    finally:
        process.kill()
    said, _ = process.communicate()
    broker.revive()
    return process.returncode, said.decode(errors="replace")


def committed(servers: str) -> Iterator[bytes]:
    """To the last stable offset, which is the end unless a transaction is open."""
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with barnabas.Consumer(bootstrap_servers=servers, **settings) as consumer:
        parts = [("out", 0), ("out", 1)]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        while any(consumer.position(where) < end for where, end in ends.items()):
            for record in consumer.poll(1):
                yield record.value
