"""Kills at random times. A life is one query with one checkpoint; a round of it feeds rows, strikes something, and lets
the query go on with another number of tasks. What is struck, when and how is drawn from the seed and the life's number;
the moment itself is the machine's."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .sink_processes import Host, Hosts, ServedBroker, role_of, send, served, wait_for
from .sink_scene import Scene, Seen

ROUNDS_EACH = 20
JITTER_MS = 60
LIMIT_S = 400.0
FIGHT_S = 20.0
STARTS_MAX = 8
STRIKES = {"jvm": 3, "python": 14, "broker": 12, "both": 1, "pause": 9, "successor": 1}
"""What is struck, and how often. `python`: a process beneath the JVM; `pause`: something stands still for a moment;
`successor`: the JVM and all beneath it stand still until a successor is through."""


def lives(seed: int, rounds: int, mode: str = "two-phase") -> Iterator[Life]:
    for number in range(-(-rounds // ROUNDS_EACH)):
        yield Life(seed, number, min(ROUNDS_EACH, rounds - number * ROUNDS_EACH), rounds, mode)


WRITERS = ("write_into_data_source", "python_streaming_sink_runner", "worker")
"""Those that write and commit; three quarters of what is struck among the Python processes."""


class Trouble(Exception):
    """What must not be."""


@dataclass(frozen=True)
class Life:
    seed: int
    number: int
    rounds: int
    of: int
    mode: str

    @property
    def again(self) -> str:
        mode = "" if self.mode == "two-phase" else f" --mode {self.mode}"
        return f"python -m tests.spark.chaos --rounds {self.of} --seed {self.seed} --life {self.number}{mode}"

    def live(self, directory: Path, hosts: Hosts, say: Callable[..., None], pause: Callable[[], None]) -> str:
        """Answers what was wrong, or nothing."""
        rng = random.Random(f"{self.seed}/{self.number}")
        two_phase = rng.random() < 0.7
        with served(directory, two_phase=two_phase) as broker, ExitStack() as stack:
            scene = Scene(directory, broker, str(self.number))
            player = _Living(self, rng, scene, broker, hosts, stack.enter_context(scene.reader()))
            try:
                for number in range(self.rounds):
                    pause()
                    began = time.monotonic()
                    told = player.round(last=number == self.rounds - 1)
                    text = f"life {self.number} round {number + 1}: {told}"
                    say(text, ok=True, took_s=time.monotonic() - began)
                player.end()
            except (Trouble, TimeoutError) as error:
                broker.revive()
                return f"{error}; at the end: {scene.verdict()}"
            finally:
                player.leave()
        return ""


class _Living:
    def __init__(
        self, life: Life, rng: random.Random, scene: Scene, broker: ServedBroker, hosts: Hosts, reader: Any
    ) -> None:
        self.life, self.rng, self.scene, self.broker, self.hosts, self.reader = life, rng, scene, broker, hosts, reader
        self.seen = Seen()
        self.host: Host | None = None
        self.tasks = 0
        self.starts = 0
        self.errors: list[str] = []
        self.settled = False

    def round(self, *, last: bool) -> str:
        rng = self.rng
        kind = rng.choices(list(STRIKES), list(STRIKES.values()))[0]
        delay_s, rows = rng.uniform(0, 1.5), rng.randrange(10, 150)
        settles = last or rng.random() < 0.7
        drawn = random.Random(rng.random())
        self.starts, self.errors = 0, []
        if kind in ("jvm", "both", "successor"):
            self.hosts.prepare()
        self.go_on(drawn)
        self.scene.feed(rows)
        if not self.settled and rng.random() < 0.7:
            self.wait_for_a_batch()
        self.watch_for(delay_s)
        where = self.scene.reached()
        struck = self.strike(kind, drawn)
        self.broker.revive()
        self.go_on(drawn)
        if settles:
            self.settle(drawn)
        self.settled = settles
        return f"{struck} after {where}, {self.tasks} tasks, {'all read' if settles else 'going on'}"

    # --- the query --------------------------------------------------------------------------------------------------

    def go_on(self, rng: random.Random) -> None:
        """The query runs, with other tasks if it was begun anew."""
        if self.host is not None and self.host.poll():
            return
        if self.host is not None and self.host.error:
            self.errors.append(self.host.error)
        if self.starts > STARTS_MAX:
            raise Trouble("the query does not go on: " + "\n--\n".join(self.errors))
        if self.host is not None and self.starts == STARTS_MAX:
            self.host.kill()  # Spark does not get over every loss of a Python process
        if self.host is None or not self.host.alive:
            self.host = self.hosts.take()
        self.starts += 1
        self.tasks = rng.choice([count for count in range(1, 5) if count != self.tasks])
        batch_rows = rng.choice((15, 40, 1000))
        query = self.scene.query(
            self.tasks, self.life.mode, batch_rows=batch_rows, until_read=False, jitter_ms=JITTER_MS
        )
        self.host.start(query)

    def read(self) -> bool:
        """What is committed by now; whether it is all of it."""
        for record in self.reader.poll(0.05):
            self.seen.take(record)
        if self.seen.is_doubled:
            twice = [value for value, count in self.seen.rows.items() if count > 1]
            raise Trouble(f"{len(twice)} rows came twice, such as {sorted(twice)[:3]}")
        if self.seen.misordered:
            raise Trouble(self.seen.misordered[0])
        return len(self.seen.rows) >= self.scene.fed

    def watch_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read()

    def wait_for_a_batch(self) -> None:
        """A query that has just begun needs its time until there is something to strike."""
        before = self.scene.reached()
        wait_for(lambda: self.read() or self.scene.reached() != before or not self.host_runs(), "a batch", LIMIT_S)

    def host_runs(self) -> bool:
        return self.host is not None and self.host.poll()

    def settle(self, rng: random.Random) -> None:
        def through() -> bool:
            self.go_on(rng)
            return self.read()

        try:
            wait_for(through, "all rows are committed", LIMIT_S)
        except TimeoutError as error:
            assert self.host is not None
            self.host.dump_threads()
            raise Trouble(f"{error}: {len(self.seen.rows)} of {self.scene.fed}, last {self.scene.reached()}") from error

    # --- strikes ----------------------------------------------------------------------------------------------------

    def strike(self, kind: str, rng: random.Random) -> str:
        assert self.host is not None
        if kind == "python":
            there = self.host.pythons()
            if not there:
                return "python (there was none)"
            writers = [pid for pid in there if role_of(pid) in WRITERS]
            pid = rng.choice(writers if writers and rng.random() < 0.75 else there)
            role = role_of(pid)
            send(pid, signal.SIGKILL)
            return f"python {role}"
        if kind == "pause":
            return self.pause(rng)
        if kind == "successor":
            self.succeed(rng)
            return "successor"
        if kind in ("broker", "both"):
            self.broker.kill()
        if kind in ("jvm", "both"):
            self.host.kill()
        return kind

    def pause(self, rng: random.Random) -> str:
        """Something stands still, and goes on."""
        assert self.host is not None
        seconds = rng.uniform(0.2, 3)
        whom = rng.choice(["broker", "jvm", *self.host.pythons()])
        if whom == "broker":
            self.broker.pause(signal.SIGSTOP)
            time.sleep(seconds)  # nobody may ask a broker that stands still
            self.broker.pause(signal.SIGCONT)
            return f"pause of the broker, {seconds:.1f} s"
        pid = self.host.jvm if whom == "jvm" else int(whom)
        role = "the jvm" if whom == "jvm" else role_of(pid)
        send(pid, signal.SIGSTOP)
        self.watch_for(seconds)
        send(pid, signal.SIGCONT)
        return f"pause of {role}, {seconds:.1f} s"

    def succeed(self, rng: random.Random) -> None:
        """A driver that wakes up late must see that it was taken over, or find nothing to do."""
        old = self.host
        assert old is not None
        was_running = old.poll()
        old.freeze()
        self.host = self.hosts.take()
        self.errors.clear()
        self.host.running, self.host.error = False, ""
        self.starts = 0
        self.settle(rng)
        self.scene.feed(20)  # the old one would have this to do
        self.settle(rng)
        old.thaw()
        try:
            wait_for(lambda: not old.poll(), "the query that stood still ends", FIGHT_S if was_running else 0)
        except TimeoutError:
            # it had just begun, and read a checkpoint that had moved on: whoever takes over last stays
            self.starts = 0
            self.scene.feed(20)
            self.settle(rng)
            if old.poll():
                old.stop()
        self.hosts.give_back(old)

    # --- the end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """One more batch ends what a paused task has begun late; then nothing may be open."""
        drawn = random.Random(0)
        self.starts = 0
        self.scene.feed(20)
        self.settle(drawn)
        verdict = self.scene.verdict()
        if not verdict.is_exact:
            raise Trouble(str(verdict))

    def leave(self) -> None:
        if self.host is not None and self.host.alive:
            if self.host.poll():
                self.host.stop()
            self.hosts.give_back(self.host)
