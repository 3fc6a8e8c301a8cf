"""A stateless query is killed again and again while its topics change: partitions are added, transactions aborted, a
topic is compacted and another one made anew. Each committed record must be in its output once.

The query writes Parquet files, which Spark does once by a log of its own: what is wrong in them is the source's doing.
"""

from __future__ import annotations

import json
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import barnabas
from barnabas.client.errors import KeysMove
from barnabas.types import TopicPartition

from .hang import what_it_does
from .sink_processes import LIMIT_S, Host, Hosts, ServedBroker, role_of, send, served, signal

PARTITIONS_MAX = 6
KEYS = 5
KEPT = {"cleanup.policy": "compact", "segment.bytes": "512", "min.cleanable.dirty.ratio": "0.01"}
BROKER = ("log.cleaner.backoff.ms=300",)
DEEDS = {"write": 4, "commit": 4, "abort": 4, "grow": 2, "anew": 1}
"""What happens to the topics, and how often."""
STRIKES = {"none": 2, "jvm": 4, "python": 3, "broker": 4, "both": 1}
STARTS_MAX = 6
DEAF = "DATA_SOURCE_NOT_FOUND"
"""The process was killed that looks for sources; Spark takes that for none, for as long as the JVM lives."""

Log = dict[int, tuple[TopicPartition, int]]
"""Where each record is."""


class Trouble(Exception):
    """What must not be."""


@dataclass
class Fed:
    """What was written: each record's value is a number of its own."""

    count: int = 0
    committed: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    """Read before their topic was deleted. None of the compacted topic: what was compacted away need not have been."""


class SourceScene:
    """Two topics, one of them compacted; a checkpoint; files."""

    def __init__(self, directory: Path, broker: ServedBroker, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.broker = directory, broker
        self.plain, self.kept = f"src-{name}-plain", f"src-{name}-kept"
        self.partitions = 2
        self.fed = Fed()
        self.compacted = 0
        self.rows: dict[str, list[int]] = {}
        """By file; files do not change."""
        with self._admin() as admin:
            admin.create_topics([barnabas.NewTopic(self.plain, 2), barnabas.NewTopic(self.kept, 1, configs=KEPT)])

    def _admin(self) -> barnabas.Admin:
        return barnabas.Admin(bootstrap_servers=self.broker.address)

    def order(self, rng: random.Random) -> dict[str, object]:
        options = {"subscribePattern": self.plain.replace("plain", ".*"), "onDataLoss": "warn"}
        options["maxOffsetsPerTrigger"] = str(rng.choice((7, 60, 5000)))
        options["minPartitions"] = str(rng.choice((1, 3, 5)))
        return {"to": "parquet", "directory": str(self.directory), "servers": self.broker.address, "options": options}

    # --- deeds ------------------------------------------------------------------------------------------------------

    def write(self, rng: random.Random, *, transaction: str = "") -> None:
        """Some records; `transaction` commits or aborts them."""
        numbers = range(self.fed.count, self.fed.count + rng.randrange(5, 60))
        self.fed.count = numbers.stop
        more = {"transactional_id": self.plain} if transaction else {}
        with barnabas.Producer(bootstrap_servers=self.broker.address, **more) as producer:
            if transaction:
                producer.init_transactions()
                producer.begin_transaction()
            for number in numbers:
                topic = rng.choice((self.plain, self.plain, self.kept))
                key = b"%d" % (number % KEYS) if topic == self.kept else None
                where = rng.randrange(self.partitions) if topic == self.plain else 0
                producer.send(topic, b"%d" % number, key=key, partition=where)
            producer.flush()
            if transaction:
                producer.commit_transaction() if transaction == "commit" else producer.abort_transaction()
        if transaction != "abort":
            self.fed.committed |= set(numbers)

    def grow(self) -> None:
        if self.partitions < PARTITIONS_MAX:
            self.partitions += 1
            with self._admin() as admin, warnings.catch_warnings():
                warnings.simplefilter("ignore", KeysMove)
                admin.create_partitions({self.plain: self.partitions})

    def make_anew(self) -> None:
        """Everything of it has been read."""
        self.fed.gone |= {number for number, (where, _) in self.log().items() if where.topic == self.plain}
        with self._admin() as admin:
            admin.delete_topics(self.plain)
            admin.create_topics(barnabas.NewTopic(self.plain, self.partitions))

    # --- what must be true ------------------------------------------------------------------------------------------

    def log(self) -> Log:
        """What the topics have now, for readers of committed records."""
        found: Log = {}
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        with barnabas.Consumer(bootstrap_servers=self.broker.address, **settings) as consumer:
            parts = [(self.plain, number) for number in range(self.partitions)] + [(self.kept, 0)]
            consumer.assign(parts)
            ends = consumer.end_offsets(parts)
            while any(consumer.position(where) < end for where, end in ends.items()):
                for record in consumer.poll(1):
                    found[int(record.value)] = TopicPartition(record.topic, record.partition), record.offset
        return found

    def seen(self) -> Counter[int]:
        """What the query has written, by its own log of files."""
        import pyarrow.parquet as parquet

        rows: Counter[int] = Counter()
        for path in self._files():
            if path not in self.rows:
                column = parquet.read_table(path, columns=["value"])["value"]
                self.rows[path] = [int(value) for value in column.to_pylist()]
            rows.update(self.rows[path])
        return rows

    def _files(self) -> list[str]:
        log = self.directory / "out" / "_spark_metadata"
        entries = {int(path.stem): path for path in log.glob("*") if path.stem.isdigit()} if log.exists() else {}
        whole = max((number for number, path in entries.items() if path.suffix == ".compact"), default=-1)
        files: dict[str, None] = {}
        for number in sorted(entries):
            if number >= whole:
                for line in entries[number].read_text().splitlines()[1:]:
                    files[unquote(urlparse(json.loads(line)["path"]).path)] = None
        return list(files)

    def missing(self) -> set[int]:
        """What has not been read yet. Raises Trouble for what must never be."""
        seen = self.seen()
        twice = sorted(number for number, count in seen.items() if count > 1)
        strange = sorted(seen.keys() - self.fed.committed)
        if twice or strange:
            raise Trouble(f"{len(twice)} came twice, such as {twice[:3]}; {len(strange)} were never committed")
        there = self.log().keys() | self.fed.gone
        self.compacted = len(self.fed.committed - there)
        return there - seen.keys()

    def told(self) -> str:
        """What is missing, and where it is."""
        log = self.log()
        missing = sorted((log.keys() | self.fed.gone) - self.seen().keys())
        first: dict[str, int] = {}
        count = Counter[str]()
        for number in missing:
            where, offset = log.get(number, ("a topic that was deleted", -1))
            count[str(where)] += 1
            first.setdefault(str(where), offset)
        places = [f"{count[where]} of {where}, the first at offset {offset}" for where, offset in first.items()]
        return f"missing are {missing[:20]}: {'; '.join(places)}"


@dataclass(frozen=True)
class SourceLife:
    """One query with one checkpoint, from a seed."""

    seed: int
    number: int
    rounds: int

    def live(self, directory: Path, hosts: Hosts, say: Callable[[str], None]) -> str:
        """Answers what was wrong, or nothing. What is done, and how each query is begun, are of the seed alone."""
        with served(directory, settings=BROKER) as broker, ExitStack() as stack:
            scene = SourceScene(directory, broker, str(self.number))
            query = _Query(scene, broker, hosts, random.Random(f"{self.seed}/{self.number}/queries"))
            stack.callback(query.leave)
            for number in range(self.rounds):
                rng = random.Random(f"{self.seed}/{self.number}/{number}")
                try:
                    said = query.round(rng, last=number == self.rounds - 1)
                except (Trouble, TimeoutError) as error:
                    what = f"{error}\nlife {self.number} round {number + 1}: {' '.join(query.done)}"
                    return f"{what}; {scene.fed.count} were written\n{query.told()}"
                say(f"life {self.number} round {number + 1}: {said}")
        return ""


class _Query:
    def __init__(self, scene: SourceScene, broker: ServedBroker, hosts: Hosts, rng: random.Random) -> None:
        self.scene, self.broker, self.hosts = scene, broker, hosts
        self.host: Host | None = None
        self.errors: list[str] = []
        self._rng = rng
        """For what is drawn as often as a query must be begun."""
        self.done: list[str] = []
        """In this round."""

    def round(self, rng: random.Random, *, last: bool) -> str:
        self.starts, self.done = 0, []
        deeds = rng.choices(list(DEEDS), list(DEEDS.values()), k=rng.randrange(1, 4))
        strike = rng.choices(list(STRIKES), list(STRIKES.values()))[0]
        self.go_on()
        for deed in deeds:
            self.do(deed, rng)
        time.sleep(rng.uniform(0, 3))  # the moment of the strike
        self.done.append(self.strike(strike))
        self.broker.revive()
        if last or rng.random() < 0.5:
            self.settle()
            self.done.append(f"all read ({self.scene.compacted} are compacted away)")
        return " ".join(self.done)

    def do(self, deed: str, rng: random.Random) -> None:
        if deed == "grow":
            self.scene.grow()
        elif deed == "anew":
            self.settle()
            self.scene.make_anew()
        self.scene.write(rng, transaction=deed if deed in ("commit", "abort") else "")
        self.done.append(deed)

    def go_on(self) -> None:
        if self.host is not None and self.host.poll():
            return
        if self.host is not None and self.host.error:
            self.errors.append(self.host.error)
            if DEAF in self.host.error:
                self.host.kill()
        if self.starts >= STARTS_MAX:
            raise Trouble(f"the query does not go on: {self.errors[-1][-1500:]}")
        if self.host is None or not self.host.alive:
            self.host = self.hosts.take()
        self.starts += 1
        self.host.start(self.scene.order(self._rng))

    def settle(self) -> None:
        """Until all is read. As long as there is less to do each time, a slow machine may take what it needs."""
        missing, deadline = self.scene.missing(), time.monotonic() + LIMIT_S
        while missing:
            self.go_on()
            time.sleep(0.2)  # looking costs more than the query does
            before, missing = missing, self.scene.missing()
            if missing != before:
                deadline = time.monotonic() + LIMIT_S
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(missing)} committed records are not read: none more within {LIMIT_S:.0f} s")

    def strike(self, kind: str) -> str:
        assert self.host is not None
        if kind in ("jvm", "both"):
            self.hosts.prepare()
        if kind == "python":
            there = self.host.pythons()
            pid = self._rng.choice(there) if there else 0
            role = role_of(pid) if pid else "none there"
            if pid:
                send(pid, signal.SIGKILL)
            return f"python {role} killed"
        if kind in ("broker", "both"):
            self.broker.kill()
        if kind in ("jvm", "both"):
            self.host.kill()
        return f"{kind} killed"

    def told(self) -> str:
        """For those who must find out why it does not get on."""
        errors = [error[-1500:] for error in self.errors[-2:]]
        doing = what_it_does(self.host, self.hosts.log) if self.host is not None and self.host.alive else "no JVM"
        return "\n".join([self.scene.told(), f"errors of the query: {errors}", doing])

    def leave(self) -> None:
        if self.host is not None and self.host.alive:
            with suppress(TimeoutError):
                if self.host.poll():
                    self.host.stop()
            self.hosts.give_back(self.host)


def source_lives(seed: int, rounds: int, each: int = 10) -> Iterator[SourceLife]:
    for number in range(-(-rounds // each)):
        yield SourceLife(seed, number, min(each, rounds - number * each))
