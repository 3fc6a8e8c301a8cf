"""The demo of flights: finds out which are in the topic, produces the others, consumes all in a group, and compares.

An administrator asks the broker for offsets and commits, independently of producer and consumers.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from barnabas import Admin, Consumer, Producer
from barnabas.cli.demo.tally import GroupReading, ProgressBar, Tally, measured
from barnabas.cli.framework.options import Cluster
from barnabas.cli.framework.output import CommandFailed
from barnabas.cli.framework.resources import watermarks
from barnabas.client.admin.topics import NewTopic
from barnabas.client.errors import ItemsFailed, OperationTimedOut
from barnabas.errors import BarnabasError, UnknownTopicOrPartition
from barnabas.pipeline.demo.flights import Flight, checksum, flight_id, read_flights
from barnabas.types import TopicPartition

__all__ = ["FlightsDemo"]

CONSUMERS: Final = 3
CONSUME_BATCH: Final = 10_000
SHOW_EVERY: Final = 1_000
BATCH_BYTES: Final = 128 * 1024
TIMEOUT_S: Final = 60.0
"""The time without a record after which the demo fails."""
LEAVE_TIMEOUT_S: Final = 3.0
FOREVER: Final = {"retention.ms": "-1", "segment.ms": str(2**63 - 1)}
"""The flights are of 2013: by its default settings, a broker would roll at every week of them and then delete them."""


class FlightsDemo:
    """`run` returns the report that is printed."""

    def __init__(self, address: str, topic: str, partitions: int, limit: int | None, *, quiet: bool) -> None:
        self._settings = {**Cluster(address, TIMEOUT_S).settings(), "client.id": "barnabas-demo"}
        self._topic = topic
        self._partitions = partitions
        self._quiet = quiet
        self._limit = limit
        self._flights: list[Flight] = []

    def run(self, *, clean: bool) -> dict[str, Any]:
        with Admin(self._settings, default_api_timeout_ms=int(TIMEOUT_S * 1000)) as admin:
            if clean:
                self._delete(admin)
            continues = self._prepare(admin)
            self._say("reading the flights")
            self._flights = read_flights(self._limit)
            missing: Iterable[int] = range(len(self._flights))
            if continues:
                missing = self._missing(admin)
            produced = self._produce(list(missing))
            consumed, tallies, assigned = self._consume(admin)
            return self._report(admin, continues, produced, consumed, tallies, assigned)

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(text, flush=True)

    # --- the topic --------------------------------------------------------------------------------------------------

    def _delete(self, admin: Admin) -> None:
        try:
            admin.delete_topics(self._topic)
        except ItemsFailed as error:
            if not error.only(UnknownTopicOrPartition):
                raise

    def _prepare(self, admin: Admin) -> bool:
        """Creates the topic unless it exists. Returns whether it has records of an earlier run."""
        try:
            admin.describe_topics(self._topic)
        except ItemsFailed as error:
            if not error.only(UnknownTopicOrPartition):
                raise
            admin.create_topics(NewTopic(self._topic, self._partitions, -1, FOREVER))
            self._say(f"starts clean: created topic {self._topic} with {self._partitions} partitions")
            return False
        records = sum(end - start for start, end in self._marks(admin).values())
        if not records:
            self._say(f"starts clean: topic {self._topic} is there and empty")
        return records > 0

    def _marks(self, admin: Admin) -> dict[TopicPartition, tuple[int, int]]:
        view = admin.describe_topics(self._topic)[self._topic]
        return watermarks(admin, [TopicPartition(self._topic, number) for number in view.partitions])

    def _missing(self, admin: Admin) -> list[int]:
        """Reads the topic, and returns the flights that it lacks."""
        marks = self._marks(admin)
        total = sum(end - start for start, end in marks.values())
        seen: Counter[int] = Counter()
        unread = [tp for tp, (start, end) in marks.items() if end > start]
        with (
            self._progress("verifying", total) as advance,
            Consumer(self._settings, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign(unread)
            while any(consumer.position(tp) < marks[tp][1] for tp in unread):
                records = consumer.poll(TIMEOUT_S, CONSUME_BATCH)
                seen.update(flight_id(record.value or b"") for record in records)
                advance(len(records))
        missing = [number for number in range(len(self._flights)) if number not in seen]
        self._say(
            f"continues: topic {self._topic} holds {total:,} records of an earlier run, "
            f"{len(missing):,} of {len(self._flights):,} flights are missing and will be added (--clean starts over)"
        )
        return missing

    # --- produce ----------------------------------------------------------------------------------------------------

    def _produce(self, numbers: list[int]) -> dict[str, Any]:
        """Writes the flights, and counts the delivery reports."""
        delivered, refused = 0, []

        def on_delivery(error: BaseException | None, _: object) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1
            else:
                refused.append(str(error))

        began = time.perf_counter()
        with (
            self._progress("producing", len(numbers)) as advance,
            Producer(
                self._settings,
                linger_ms=20,
                batch_size=BATCH_BYTES,
                compression_type="lz4",
                delivery_timeout_ms=int(TIMEOUT_S * 1000),
            ) as producer,
        ):
            shown = 0
            for count, number in enumerate(numbers, 1):
                key, value, timestamp = self._flights[number]
                producer.send(self._topic, value, key, timestamp=timestamp, on_delivery=on_delivery)
                if count % SHOW_EVERY == 0:
                    advance(delivered - shown)
                    shown = delivered
                    if refused:
                        break
            while delivered < len(numbers) and not refused:
                with contextlib.suppress(OperationTimedOut):
                    producer.flush(0.1)
                advance(delivered - shown)
                shown = delivered
            if refused:
                producer.purge()
                raise CommandFailed(f"{len(refused)} flights were not written: {refused[0]}")
        seconds = time.perf_counter() - began
        size = sum(len(key) + len(value) for key, value, _ in map(self._flights.__getitem__, numbers))
        return measured(delivered, size, seconds)

    # --- consume ----------------------------------------------------------------------------------------------------

    def _consume(self, admin: Admin) -> tuple[dict[str, Any], list[Tally], dict[int, str]]:
        """Reads the topic with three consumers in one new group, which commit all."""
        marks = {tp.partition: mark for tp, mark in self._marks(admin).items()}
        total = sum(end - start for start, end in marks.values())
        self._group = time.strftime("barnabas-demo-%Y%m%d-%H%M%S", time.gmtime())
        reading = GroupReading({number: end for number, (start, end) in marks.items() if end > start})
        tallies = [Tally(f"consumer-{index + 1}") for index in range(CONSUMERS)]
        threads = [
            threading.Thread(target=self._read, args=(tally, reading), name=tally.name, daemon=True)
            for tally in tallies
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        try:
            self._wait(threads, tallies, reading, total)
        finally:
            reading.stop.set()
            for thread in threads:
                thread.join(LEAVE_TIMEOUT_S)
        if reading.failure is not None:
            raise CommandFailed(f"consuming failed: {reading.failure}")
        first = min((tally.first for tally in tallies if tally.first), default=began)
        last = max((tally.last for tally in tallies), default=began)
        for tally in tallies:
            tally.examine()
        size = sum(tally.size for tally in tallies)
        consumed = measured(sum(tally.records for tally in tallies), size, last - first)
        consumed |= {"consumers": CONSUMERS, "group": self._group, "join_seconds": round(first - began, 3)}
        owners = {partition: tally.name for tally in tallies for partition in tally.by_partition}
        return consumed, tallies, owners

    def _wait(self, threads: list[threading.Thread], tallies: list[Tally], reading: GroupReading, total: int) -> None:
        """Shows the progress until the consumers have read all, or no record comes for too long."""
        with self._progress("consuming", total) as advance:
            shown, moved = 0, time.monotonic()
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.02)
                count = sum(tally.records for tally in tallies)
                if count > shown:
                    advance(count - shown)
                    shown, moved = count, time.monotonic()
                if time.monotonic() - moved > TIMEOUT_S:
                    reading.failure = f"nothing came for {TIMEOUT_S:g} s, {count:,} of {total:,} records are here"
                    return

    def _read(self, tally: Tally, reading: GroupReading) -> None:
        def commit(consumer: Consumer, _: object) -> None:
            consumer.commit()  # the next owners of the partitions must not read the counted records again

        settings = {
            **self._settings,
            "client.id": tally.name,
            "group.id": self._group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.max.wait.ms": 100,
        }
        try:
            with Consumer(settings, self._topic, on_revoked=commit) as consumer:
                while not reading.stop.is_set() and not reading.complete:
                    records = consumer.poll(0.1, CONSUME_BATCH)
                    if records:
                        tally.take(records)
                        reading.take(records)
                consumer.commit()
        except BarnabasError as error:
            reading.failure = str(error)
            reading.stop.set()

    # --- the report -------------------------------------------------------------------------------------------------

    def _report(
        self,
        admin: Admin,
        continues: bool,
        produced: dict[str, Any],
        consumed: dict[str, Any],
        tallies: list[Tally],
        owners: dict[int, str],
    ) -> dict[str, Any]:
        marks = self._marks(admin)
        committed = admin.list_group_offsets(self._group)
        rows: list[dict[str, Any]] = []
        for tp, (start, end) in sorted(marks.items()):
            done = committed[tp].offset if tp in committed else None
            rows.append(
                {
                    "partition": tp.partition,
                    "start_offset": start,
                    "end_offset": end,
                    "records": sum(tally.by_partition[tp.partition] for tally in tallies),
                    "committed_offset": done,
                    "lag": end - (start if done is None else done),
                    "consumer": owners.get(tp.partition),
                }
            )
        checks = self._compare(tallies)
        lag = sum(row["lag"] for row in rows)
        return {
            "topic": self._topic,
            "group": self._group,
            "run": "continued" if continues else "clean",
            "flights": len(self._flights),
            "produced": produced,
            "consumed": consumed,
            "partitions": rows,
            "lag": lag,
            "checks": checks,
            "ok": not lag and not any(checks.values()),
        }

    def _compare(self, tallies: list[Tally]) -> dict[str, int]:
        """Compares the records that were read with the file: ids, how often each came, and checksums."""
        found: Counter[int] = Counter()
        changed = 0
        for tally in tallies:
            for number, digest in tally.seen:
                found[number] += 1
                known = 0 <= number < len(self._flights)
                if not known or checksum(*self._flights[number]) != digest:
                    changed += 1
        return {
            "missing": sum(number not in found for number in range(len(self._flights))),
            "doubled": sum(count - 1 for count in found.values()),
            "changed": changed,
            "offset_gaps": sum(tally.gaps for tally in tallies),
        }

    def _progress(self, title: str, total: int) -> ProgressBar:
        return ProgressBar(title, total, shown=not self._quiet and total > 0)
