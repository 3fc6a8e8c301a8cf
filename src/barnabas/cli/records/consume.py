"""`barnabas consume`: prints records in kcat's formats or as JSON lines, alone or in a group."""

import re
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

from barnabas import Admin, Consumer
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json, parse_partitions
from barnabas.cli.framework.output import notice, now_ms
from barnabas.cli.framework.progress import Progress
from barnabas.cli.framework.resources import check_topic, chosen_topics, is_pattern, name_pattern
from barnabas.cli.records.formats import ENCODINGS, FORMAT_NOTES, Renderer, compile_format, json_lines
from barnabas.cli.records.positions import Start, parse_starts, start_positions, stop_positions
from barnabas.client.errors import ClientError, CommitFailed, OperationTimedOut
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.connection.drivers.signals import HELD
from barnabas.errors import (
    BarnabasError,
    KafkaError,
    OffsetOutOfRange,
    RebalanceInProgress,
    UnknownTopicOrPartition,
    UsageError,
)
from barnabas.records.consumer_record import ConsumerRecord
from barnabas.types import TopicPartition

app = App("Read records and print them.")

DEFAULT_FORMAT: Final = "%v\\n"
COMMIT_INTERVAL_S: Final = 5.0
"""The time between commits, and the longest that one of them may hold up the reading."""
POLL_S: Final = 0.5
CLOSE_TIMEOUT_S: Final = 2.0
"""The time limit after Ctrl-C of the last commit, and of leaving the group."""

REGISTRY: Final = "registry"
RAW: Final = "raw"
PRINTED_AS: Final = (*ENCODINGS, REGISTRY)

Filter = Callable[[ConsumerRecord], bool]
Field = Callable[[ConsumerRecord], Sequence[bytes]]


@app.command(
    "",
    example="barnabas consume orders --exit\n"
    "barnabas consume orders --group billing --format '%t-%p@%o %k %v\\n'\n"
    "barnabas consume '^orders' --offset s@-1h --json\n"
    "barnabas consume orders --registry http://localhost:8081",
    notes=FORMAT_NOTES,
)
def consume(
    topics: Annotated[
        list[str], Argument("TOPIC", "A topic, or ^PATTERN for all whose names begin so.", check=check_topic)
    ],
    format: Annotated[
        str, Option("-f", takes_bytes=True, help="What to print of each record; the tokens are explained below.")
    ] = DEFAULT_FORMAT,
    offset: Annotated[
        list[str] | None, Option("-o", metavar="WHERE", help="Where to begin, or (e@TIME) to end; explained below.")
    ] = None,
    exit_at_end: Annotated[
        bool, Option("--exit", "-e", help="Stop at the offsets at which the partitions ended when reading began.")
    ] = False,
    count: Annotated[int | None, Option("-c", minimum=1, help="Stop after this number of records.")] = None,
    partitions: Annotated[str | None, Option("-p", metavar="0,2,5-7", help="Read only these partitions.")] = None,
    grep: Annotated[
        str | None, Option(metavar="REGEX", takes_bytes=True, help="Print only records whose key or value matches.")
    ] = None,
    grep_key: Annotated[
        str | None, Option(metavar="REGEX", takes_bytes=True, help="Print only records whose key matches.")
    ] = None,
    grep_value: Annotated[
        str | None, Option(metavar="REGEX", takes_bytes=True, help="Print only records whose value matches.")
    ] = None,
    grep_header: Annotated[
        str | None,
        Option(metavar="REGEX", takes_bytes=True, help="Print only records with a header that matches, as name=value."),
    ] = None,
    group: Annotated[
        str | None, Option("-g", help="Read as a member of this group, and commit the printed records.")
    ] = None,
    key_as: Annotated[
        str, Option(choices=PRINTED_AS, help="How keys are printed; registry: decoded, as JSON.")
    ] = "raw",
    value_as: Annotated[
        str, Option(choices=PRINTED_AS, help="How values are printed; registry: decoded, as JSON.")
    ] = "raw",
    registry: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="The schema registry that keys or values are decoded by (values, if neither is said)."
            " Also schema.registry.url by -X or in a profile.",
        ),
    ] = None,
    null: Annotated[bool, Option("-Z", help="Print NULL for null keys and values.")] = False,
    read_committed: Annotated[bool, Option(help="Leave out records of open and aborted transactions.")] = False,
    quiet: Annotated[bool, Option("-q", help="No notices about ends and rebalances, no progress.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Read records and print them, from the beginning on; with --group from the group's committed offsets on.

    Goes on until Ctrl-C or SIGTERM, or as --exit and --count say. With --group the printed records are then committed,
    and the command leaves the group, so that other members take over at once; it also commits every few seconds, and
    goes on while the group's coordinator does not answer. A progress line is shown if the records do not go to the
    terminal.
    """
    start, end_ms = parse_starts(offset or (), now_ms())
    if group is not None and partitions is not None:
        raise UsageError("--partitions and --group exclude each other: a group assigns partitions itself")
    if start.kind == "stored" and group is None:
        raise UsageError("-o stored: needs --group, whose committed offsets are meant")
    if registry is not None and REGISTRY not in (key_as, value_as):
        value_as = REGISTRY
    decoder = None
    if REGISTRY in (key_as, value_as):
        from barnabas.cli.records.registry_values import BatchDecoder

        settings = cluster.registry_settings() | ({} if registry is None else {"url": registry})
        decoder = BatchDecoder(
            settings, cluster.timeout, keys=key_as == REGISTRY, values=value_as == REGISTRY, quiet=quiet
        )
        key_as, value_as = (RAW if each == REGISTRY else each for each in (key_as, value_as))
    printer = _Printer(
        json_lines if json else compile_format(format, encode_key=key_as, encode_value=value_as, null=b"NULL" * null),
        _filters(grep, grep_key, grep_value, grep_header),
        count,
        None if decoder is None else decoder.decode,
    )
    with cluster.admin(beside_another=True) as admin:
        # unknown topics are refused before the command joins a group
        led, leaderless = _chosen(admin, topics, partitions)
    client = {
        **cluster.settings(),
        "group.id": group,
        "enable.auto.commit": False if group is not None else None,
        "auto.offset.reset": "none",  # the user is told the next offsets
        "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        "fetch.max.wait.ms": int(POLL_S * 1000),
        "default.api.timeout.ms": int(cluster.timeout * 1000),
    }
    with Consumer(client) as consumer:
        reader = _Reader(consumer, printer, start, exit_at_end or end_ms is not None, end_ms, quiet)
        with reader.progress:
            if group is None:
                reader.read_alone(led, leaderless)
            else:
                reader.read_in_group(subscription(topics))
    if not printer.count:
        reader.notify("no records")
    if decoder is not None:
        decoder.finish()


def _chosen(
    admin: Admin, topics: Sequence[str], partitions: str | None
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Returns the partitions to read that have a leader now, and the others. Raises UnknownTopicOrPartition."""
    led: list[TopicPartition] = []
    leaderless: list[TopicPartition] = []
    for view in chosen_topics(admin, topics):
        topic = view.name
        numbers = list(view.partitions) if partitions is None else parse_partitions(partitions)
        for number in numbers:
            if number not in view.partitions:
                last = len(view.partitions) - 1
                raise UnknownTopicOrPartition(f"topic {topic!r} has partitions 0 to {last}, not {number}")
            into = led if view.partitions[number].leader >= 0 else leaderless
            into.append(TopicPartition(topic, number))
    return led, leaderless


def subscription(topics: Sequence[str]) -> Sequence[str] | re.Pattern[str]:
    """Returns names to subscribe to, or one pattern for all if there is a pattern among them."""
    if not any(map(is_pattern, topics)):
        return topics
    parts = [name_pattern(topic).pattern if is_pattern(topic) else re.escape(topic) for topic in topics]
    return re.compile("|".join(f"(?:{part})" for part in parts))


def _filters(grep: str | None, key: str | None, value: str | None, header: str | None) -> list[Filter]:
    patterns: list[tuple[str | None, Field]] = [
        (grep, lambda record: (record.key or b"", record.value or b"")),
        (key, lambda record: (record.key or b"",)),
        (value, lambda record: (record.value or b"",)),
        (header, lambda record: [name.encode() + b"=" + (value or b"") for name, value in record.headers]),
    ]
    return [_filter(_regex(text), field) for text, field in patterns if text is not None]


def _filter(pattern: re.Pattern[bytes], field: Field) -> Filter:
    return lambda record: any(map(pattern.search, field(record)))


def _regex(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise UsageError(f"regular expression {text!r}: {error}") from None


class _Printer:
    """Writes records to standard output until the count is reached."""

    def __init__(
        self,
        render: Renderer,
        filters: Sequence[Filter],
        count: int | None,
        decode: Callable[[RecordBatch], RecordBatch] | None = None,
    ) -> None:
        """`decode` is applied first, so that filters see what is printed."""
        self._render = render
        self._decode = decode
        self._filters = filters
        self._left = count
        self.count = 0
        """The number of printed records."""

    @property
    def full(self) -> bool:
        return self._left == 0

    def print(self, batch: RecordBatch, stop: int | None) -> int:
        """Print the records before offset `stop`. Returns the next offset to read."""
        tp = TopicPartition(batch.topic, batch.partition)
        offsets = batch.offsets()
        next_offset = offsets[-1] + 1
        if stop is not None and stop < next_offset:
            batch = RecordBatch.of(tp, batch[: bisect_left(offsets, stop)])
            next_offset = stop
        if self._decode is not None:
            if self._left is not None and self._left < len(batch) and not self._filters:
                batch = RecordBatch.of(tp, batch[: self._left])  # the other records need not be decodable
            batch = self._decode(batch)
        if self._filters:
            batch = RecordBatch.of(tp, [record for record in batch if all(take(record) for take in self._filters)])
        if self._left is not None:
            if self._left <= len(batch):
                batch = RecordBatch.of(tp, batch[: self._left])
                next_offset = batch[-1].offset + 1
            self._left -= len(batch)
        self.count += len(batch)
        self._write(self._render(batch))
        return next_offset

    def _write(self, output: bytes) -> None:
        """Writes everything: without a buffer (PYTHONUNBUFFERED) a signal may cut a call short."""
        left = memoryview(output)
        while left:
            left = left[sys.stdout.buffer.write(left) :]
        sys.stdout.buffer.flush()


class _Reader:
    """Reads partitions into a printer, alone or as a member of a group."""

    def __init__(
        self, consumer: Consumer, printer: _Printer, start: Start, stops: bool, end_ms: int | None, quiet: bool
    ) -> None:
        self._consumer = consumer
        self._printer = printer
        self._start = start
        self._ends = stops
        self._end_ms = end_ms
        self._quiet = quiet
        self._begun = False
        self._open: set[TopicPartition] = set()
        """The partitions that have not reached their stop."""
        self._stop_offsets: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        """The offsets after the records that are printed and not committed yet."""
        self._committed: dict[TopicPartition, int] = {}
        """The offsets that this process has committed."""
        self._commit_failure: BarnabasError | None = None
        """The passing reason why the last commit failed; None after one that did not fail so."""
        self._starts: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        """The first offsets to read, and the next ones."""
        # on a terminal the records themselves show the progress
        self.progress = Progress(self._progress_text, shown=not quiet and not sys.stdout.isatty())

    def read_alone(self, led: Sequence[TopicPartition], leaderless: Sequence[TopicPartition]) -> None:
        """Reads all partitions. With an end those that have a leader come first: the others may get none in time."""
        if self._ends and led:
            self._read_partitions(led)
            if leaderless and not self._printer.full:
                self._read_partitions(leaderless)
        else:
            self._read_partitions([*led, *leaderless])

    def _read_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        positions = start_positions(self._consumer, partitions, self._start)
        self._consumer.assign(partitions)
        for tp, offset in positions.items():
            self._consumer.seek(tp, offset)
        self._begin(positions)
        while not self._finished:
            self._read()

    def read_in_group(self, topics: Sequence[str] | re.Pattern[str]) -> None:
        self._consumer.subscribe(
            topics, on_assigned=self._on_assigned, on_revoked=self._on_revoked, on_lost=self._on_lost
        )
        committed_at = time.monotonic()
        try:
            while not self._finished:
                self._read()
                if time.monotonic() - committed_at >= COMMIT_INTERVAL_S:
                    self._commit(COMMIT_INTERVAL_S)
                    committed_at = time.monotonic()
        finally:
            failure = self._leave_group()
        if failure is not None:
            raise failure

    def _leave_group(self) -> BarnabasError | None:
        """Commits the printed records, leaves the group, and reports what was acknowledged. Returns the passing reason
        why records are not committed."""
        all_committed, failure = False, None
        try:
            all_committed = self._commit(CLOSE_TIMEOUT_S)
            failure = self._commit_failure if self._done else None
        finally:
            self._done.clear()  # the consumer calls `_on_revoked` once more, and there is no time left for a commit
            group = self._consumer.group_metadata().group_id
            self._consumer.close(CLOSE_TIMEOUT_S)
            positions = ", ".join(f"{tp} at {offset}" for tp, offset in sorted(self._committed.items()))
            parts = [f"committed {positions}"] if positions else []
            if not all_committed:
                parts.append("could not commit all that was printed, so it will be read again")
            what = "; ".join(parts) or "nothing to commit"
            left = "left the group" if failure is None else "the group may miss that this member has left"
            self.notify(f"group {group}: {what}; {left}")
        return failure

    @property
    def _finished(self) -> bool:
        return self._printer.full or (self._ends and self._begun and not self._open)

    # --- what is read -----------------------------------------------------------------------------------------------

    def _begin(self, positions: Mapping[TopicPartition, int]) -> None:
        """Notes that these partitions are read from these positions on."""
        self._begun = True
        self._open |= positions.keys()
        self._starts.update(positions)
        self._next.update(positions)
        if self._ends and positions:
            self._stop_offsets.update(stop_positions(self._consumer, list(positions), self._end_ms))
            for tp, offset in positions.items():
                if offset >= self._stop_offsets[tp]:
                    self._stop(tp)

    def _on_assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Seeks after a rebalance: to the committed offset, or without one to the offset of -o."""
        stored = consumer.committed(partitions)
        positions = {tp: found.offset for tp, found in stored.items() if found is not None}
        fresh = start_positions(consumer, [tp for tp in partitions if tp not in positions], self._start)
        for tp, offset in fresh.items():
            consumer.seek(tp, offset)
        self._begin(positions | fresh)
        group = consumer.group_metadata()
        names = ", ".join(map(str, sorted(consumer.assignment()))) or "nothing"
        self.notify(f"group {group.group_id} generation {group.generation_id}: assigned {names}")

    def _on_revoked(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._commit()
        self._on_lost(_, partitions)

    def _on_lost(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._open.difference_update(partitions)
        for tp in partitions:
            self._done.pop(tp, None)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            batch = self._consumer.poll_batch(POLL_S)
        except OffsetOutOfRange:
            self._move_into_range()
            return
        if batch is not None:
            tp = TopicPartition(batch.topic, batch.partition)
            with HELD:  # after a Ctrl-C between these two lines the records would be printed again
                next_offset = self._printer.print(batch, self._stop_offsets.get(tp))
                self._done[tp] = self._next[tp] = next_offset
            self._check_stop(tp, next_offset)
        elif self._ends:
            for tp in list(self._open):
                self._check_stop(tp, 0)
        self.progress.show(self._printer.count)

    def _check_stop(self, tp: TopicPartition, next_offset: int) -> None:
        """Ends the reading of a partition at its stop, also if only a transaction's marker is left before it."""
        if not self._ends:
            return
        if next_offset >= self._stop_offsets[tp] or self._consumer.position(tp) >= self._stop_offsets[tp]:
            self._stop(tp)

    def _stop(self, tp: TopicPartition) -> None:
        self._consumer.pause([tp])
        self._open.discard(tp)

    def _move_into_range(self) -> None:
        """Seeks into the log where retention has deleted the next records."""
        partitions = self._consumer.assignment()
        low, high = self._consumer.beginning_offsets(partitions), self._consumer.end_offsets(partitions)
        for tp in partitions:
            offset = self._consumer.position(tp)
            if low[tp] <= offset <= high[tp]:
                continue
            position = low[tp] if offset < low[tp] else high[tp]
            self._consumer.seek(tp, position)
            self.notify(f"{tp}: offset {offset} is gone, going on at {position}")

    def notify(self, text: str) -> None:
        """Prints a notice, unless --quiet is given."""
        if not self._quiet:
            self.progress.clear()
            notice(f"% {text}")

    def _progress_text(self) -> str:
        """Returns the share of the offsets that is read, or without stops the lag."""
        if not self._ends:
            lag = self._consumer.health().total_lag
            return "" if lag is None else f"lag {lag:,}"
        total = sum(max(self._stop_offsets[tp] - start, 0) for tp, start in self._starts.items())
        left = sum(self._stop_offsets[tp] - self._next[tp] for tp in self._open)
        return f"{100 * (total - left) / total:.0f} %" if total > 0 else ""

    def _commit(self, timeout: float | None = None) -> bool:
        """Commits the printed records. Returns False if that fails: for a passing reason, which is told once, the next
        commit has them, too; after a rebalance other members read them again. Raises errors that do not pass."""
        offsets = dict(self._done)
        if not offsets:
            return True
        try:
            self._consumer.commit(offsets, timeout)
        except (CommitFailed, RebalanceInProgress):
            self._commit_failure = None
            self._done.clear()
            return False
        except (KafkaError, ClientError) as error:
            if not (error.retriable or isinstance(error, OperationTimedOut)):
                raise
            if self._commit_failure is None:
                self.progress.clear()
                notice(f"% the printed records cannot be committed now, a later commit will have them: {error}")
            self._commit_failure = error
            return False
        self._done.clear()
        self._committed.update(offsets)
        if self._commit_failure is not None:
            self._commit_failure = None
            self.notify("the printed records are committed again")
        return True
