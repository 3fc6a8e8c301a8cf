"""One query's topics, its checkpoint, and what must be true of them at the end."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import barnabas

from .sink_processes import ServedBroker

PARTITIONS = 2


@dataclass
class Verdict:
    """What readers with isolation.level=read_committed have, beside what was fed."""

    doubled: int
    missing: int
    strange: int
    misordered: list[str]
    left_open: list[str]

    @property
    def is_exact(self) -> bool:
        return not (self.doubled or self.missing or self.strange or self.misordered or self.left_open)

    def __str__(self) -> str:
        if self.is_exact:
            return "exact"
        parts = {"doubled": self.doubled, "missing": self.missing, "strange": self.strange}
        more = {"misordered": self.misordered[:3], "open": self.left_open[:3]}
        return " ".join(f"{name}={value}" for name, value in {**parts, **more}.items() if value)


@dataclass
class Seen:
    """Committed rows as they come: how often each, and the last of each task's in each partition."""

    rows: Counter[bytes] = field(default_factory=Counter)
    last: dict[tuple[int, bytes], int] = field(default_factory=dict)
    misordered: list[str] = field(default_factory=list)

    def take(self, record: Any) -> None:
        self.rows[record.value] += 1
        who, _, number = record.key.rpartition(b"/")
        where = (record.partition, who)
        if int(number) <= self.last.get(where, -1):
            self.misordered.append(f"{who.decode()} wrote {int(number)} after {self.last[where]}")
        self.last[where] = int(number)

    @property
    def is_doubled(self) -> bool:
        return self.rows.total() > len(self.rows)


class Scene:
    def __init__(self, directory: Path, broker: ServedBroker, name: str) -> None:
        self.directory, self.broker, self.name = directory, broker, name
        directory.mkdir(parents=True, exist_ok=True)
        self.fed = 0
        with self._admin() as admin:
            admin.create_topics([barnabas.NewTopic(self.source, PARTITIONS), barnabas.NewTopic(self.sink, PARTITIONS)])

    @property
    def source(self) -> str:
        return f"in-{self.name}"

    @property
    def sink(self) -> str:
        return f"out-{self.name}"

    def _admin(self) -> barnabas.Admin:
        return barnabas.Admin(bootstrap_servers=self.broker.address)

    def feed(self, count: int) -> None:
        values = [b"%d" % number for number in range(self.fed, self.fed + count)]
        with barnabas.Producer(bootstrap_servers=self.broker.address) as producer:
            producer.send_many(self.source, values).result(30)
        self.fed += count

    def query(self, tasks: int, mode: str, *, batch_rows: int, until_read: bool, jitter_ms: int = 0) -> dict[str, Any]:
        return {
            "directory": str(self.directory),
            "servers": self.broker.address,
            "source": self.source,
            "sink": self.sink,
            "tasks": tasks,
            "mode": mode,
            "batch_rows": batch_rows,
            "until_read": until_read,
            "jitter_ms": jitter_ms,
        }

    def order(self, **order: Any) -> None:
        (self.directory / "order.json").write_text(json.dumps(order))

    def fired(self) -> int | None:
        """Who came to the place of the order."""
        try:
            return int((self.directory / "done").read_text() or 0) or None
        except FileNotFoundError:
            return None

    def reached(self) -> str:
        """Where the query was last heard of."""
        with contextlib.suppress(FileNotFoundError, IndexError):
            point, batch, *_ = (self.directory / "trace").read_text().splitlines()[-1].split()
            return f"{point} of batch {batch}"
        return "nothing"

    def times(self, place: str) -> int:
        """How often a place was reached."""
        try:
            return sum(line.startswith(f"{place} ") for line in (self.directory / "trace").read_text().splitlines())
        except FileNotFoundError:
            return 0

    # --- what must be true ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reader(self, isolation: str = "read_committed") -> Iterator[Any]:
        settings = {"isolation_level": isolation, "auto_offset_reset": "earliest"}
        with barnabas.Consumer(bootstrap_servers=self.broker.address, **settings) as consumer:
            consumer.assign(self.parts())
            yield consumer

    def parts(self) -> list[tuple[str, int]]:
        return [(self.sink, index) for index in range(PARTITIONS)]

    def committed(self) -> Seen:
        """To the last stable offset, which is the end unless a transaction is open."""
        seen = Seen()
        with self.reader() as consumer:
            ends = consumer.end_offsets(self.parts())
            while any(consumer.position(where) < end for where, end in ends.items()):
                for record in consumer.poll(1):
                    seen.take(record)
        return seen

    def left_open(self) -> list[str]:
        """Transactions of this query that nobody has ended, and partitions whose readers wait for one."""
        query = json.loads((self.directory / "checkpoint" / "metadata").read_text())["id"]
        with self._admin() as admin:
            found = [each.transactional_id for each in admin.list_transactions(states=["Ongoing"])]
        with self.reader() as stable, self.reader("read_uncommitted") as all_of_it:
            until, end = stable.end_offsets(self.parts()), all_of_it.end_offsets(self.parts())
        held = [f"{where[0]}-{where[1]} from {until[where]}" for where in end if until[where] < end[where]]
        return [name for name in found if name.startswith(query)] + held

    def verdict(self, patience_s: float = 15.0) -> Verdict:
        """Ends that are under way may take a moment."""
        deadline = time.monotonic() + patience_s
        while (left := self.left_open()) and time.monotonic() < deadline:
            time.sleep(0.1)
        seen = self.committed()
        wanted = {b"%d" % number for number in range(self.fed)}
        return Verdict(
            seen.rows.total() - len(seen.rows),
            len(wanted - seen.rows.keys()),
            len(seen.rows.keys() - wanted),
            seen.misordered,
            left,
        )
