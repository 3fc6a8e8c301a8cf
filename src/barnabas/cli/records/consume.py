"""`barnabas consume`: print records in kcat's formats or as JSON lines, alone or in a group."""

import re
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

from barnabas import Admin, Consumer
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json, parse_partitions
from barnabas.cli.framework.output import notice
from barnabas.cli.framework.progress import Progress
from barnabas.cli.framework.resources import chosen_topics, is_pattern, name_pattern
from barnabas.cli.records.formats import ENCODINGS, FORMAT_NOTES, Renderer, compile_format, json_lines
from barnabas.cli.records.positions import Start, parse_starts, start_positions, stop_positions
from barnabas.client.errors import CommitFailed
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.connection.drivers.signals import HELD
from barnabas.errors import OffsetOutOfRange, RebalanceInProgress, UnknownTopicOrPartition, UsageError
from barnabas.records.consumer_record import ConsumerRecord
from barnabas.types import TopicPartition

app = App("Read records and print them.")

DEFAULT_FORMAT: Final = "%v\\n"
COMMIT_INTERVAL_S: Final = 5.0
POLL_S: Final = 0.5
CLOSE_TIMEOUT_S: Final = 2.0
"""What Ctrl-C waits for at most, twice: the last commit, and leaving the group."""

REGISTRY: Final = "registry"
RAW: Final = "raw"
PRINTED_AS: Final = (*ENCODINGS, REGISTRY)

Filter = Callable[[ConsumerRecord], bool]


@app.command(
    "",
    example="barnabas consume orders --exit\n"
    "barnabas consume orders --group billing --format '%t-%p@%o %k %v\\n'\n"
    "barnabas consume '^orders' --offset s@-1h --json\n"
    "barnabas consume orders --registry http://localhost:8081",
    notes=FORMAT_NOTES,
)
def consume(
    topics: Annotated[list[str], Argument("TOPIC", "A topic, or ^PATTERN for all whose names begin so.")],
    format: Annotated[
        str, Option("-f", help="What to print of each record; the tokens are explained below.")
    ] = DEFAULT_FORMAT,
    offset: Annotated[
        list[str] | None, Option("-o", metavar="WHERE", help="Where to begin, or (e@TIME) to end; explained below.")
    ] = None,
    exit_at_end: Annotated[
        bool, Option("--exit", "-e", help="Stop where the partitions ended when reading began.")
    ] = False,
    count: Annotated[int | None, Option("-c", minimum=1, help="Stop after so many records.")] = None,
    partitions: Annotated[str | None, Option("-p", metavar="0,2,5-7", help="Read only these partitions.")] = None,
    grep: Annotated[str | None, Option(metavar="REGEX", help="Print only records whose key or value matches.")] = None,
    grep_key: Annotated[str | None, Option(metavar="REGEX", help="Print only records whose key matches.")] = None,
    grep_value: Annotated[str | None, Option(metavar="REGEX", help="Print only records whose value matches.")] = None,
    grep_header: Annotated[
        str | None, Option(metavar="REGEX", help="Print only records with a header that matches, as name=value.")
    ] = None,
    group: Annotated[
        str | None, Option("-g", help="Read as a member of this group, and commit what was printed.")
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
    """Read records and print them, from the beginning on; with --group from where the group is.

    Goes on until Ctrl-C or SIGTERM, or as --exit and --count say. With --group what was printed is committed then, and
    the group left, so that other members take over at once.
    Where the records do not go to the terminal it shows how far it is.
    """
    start, end_ms = parse_starts(offset or (), time.time_ns() // 1_000_000)
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
        # unknown topics are refused before a group is troubled
        chosen = _chosen(admin, topics, partitions)
    client = {
        **cluster.settings(),
        "group.id": group,
        "enable.auto.commit": False if group is not None else None,
        "auto.offset.reset": "none",  # where to go on then is said to the user
        "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        "fetch.max.wait.ms": int(POLL_S * 1000),
        "default.api.timeout.ms": int(cluster.timeout * 1000),
    }
    with Consumer(client) as consumer:
        reader = _Reader(consumer, printer, start, exit_at_end or end_ms is not None, end_ms, quiet)
        with reader.progress:
            if group is None:
                reader.read_alone(chosen)
            else:
                reader.read_in_group(subscription(topics))
    if not printer.count:
        reader.notify("no records")
    if decoder is not None:
        decoder.finish()


def _chosen(admin: Admin, topics: Sequence[str], partitions: str | None) -> list[TopicPartition]:
    """The partitions to read. Raises UnknownTopicOrPartition."""
    chosen = []
    for view in chosen_topics(admin, topics):
        topic = view.name
        numbers = list(view.partitions) if partitions is None else parse_partitions(partitions)
        for number in numbers:
            if number not in view.partitions:
                last = len(view.partitions) - 1
                raise UnknownTopicOrPartition(f"topic {topic!r} has partitions 0 to {last}, not {number}")
            chosen.append(TopicPartition(topic, number))
    return chosen


def subscription(topics: Sequence[str]) -> Sequence[str] | re.Pattern[str]:
    """What a consumer subscribes to: names, or a pattern for all where there is one among them."""
    if not any(map(is_pattern, topics)):
        return topics
    parts = [name_pattern(topic).pattern if is_pattern(topic) else re.escape(topic) for topic in topics]
    return re.compile("|".join(f"(?:{part})" for part in parts))


def _filters(grep: str | None, key: str | None, value: str | None, header: str | None) -> list[Filter]:
    found: list[Filter] = []
    if grep is not None:
        anywhere = _regex(grep)
        found.append(lambda r: bool(anywhere.search(r.key or b"") or anywhere.search(r.value or b"")))
    if key is not None:
        in_key = _regex(key)
        found.append(lambda r: bool(in_key.search(r.key or b"")))
    if value is not None:
        in_value = _regex(value)
        found.append(lambda r: bool(in_value.search(r.value or b"")))
    if header is not None:
        in_header = _regex(header)
        found.append(lambda r: any(in_header.search(name.encode() + b"=" + (v or b"")) for name, v in r.headers))
    return found


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
        """Records printed."""

    @property
    def full(self) -> bool:
        return self._left == 0

    def print(self, batch: RecordBatch, stop: int | None) -> int:
        """Print the records before offset `stop`. Returns the next offset to read."""
        where = TopicPartition(batch.topic, batch.partition)
        offsets = batch.offsets()
        next_offset = offsets[-1] + 1
        if stop is not None and stop < next_offset:
            batch = RecordBatch.of(where, batch[: bisect_left(offsets, stop)])
            next_offset = stop
        if self._decode is not None:
            if self._left is not None and self._left < len(batch) and not self._filters:
                batch = RecordBatch.of(where, batch[: self._left])  # the rest is not printed, so it need not be good
            batch = self._decode(batch)
        if self._filters:
            batch = RecordBatch.of(where, [record for record in batch if all(take(record) for take in self._filters)])
        if self._left is not None:
            if self._left <= len(batch):
                batch = RecordBatch.of(where, batch[: self._left])
                next_offset = batch[-1].offset + 1
            self._left -= len(batch)
        self.count += len(batch)
        self._write(self._render(batch))
        return next_offset

    def _write(self, output: bytes) -> None:
        """All of it: where standard output has no buffer (PYTHONUNBUFFERED), a signal cuts a call short."""
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
        """Partitions that have not come to their stop."""
        self._stops: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        """Next offsets of what was printed and not committed yet."""
        self._committed: dict[TopicPartition, int] = {}
        """What this process has committed."""
        self._starts: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        """Where reading began, and where it is."""
        # on a terminal the records themselves show how far it is
        self.progress = Progress(self._how_far, shown=not quiet and not sys.stdout.isatty())

    def read_alone(self, partitions: Sequence[TopicPartition]) -> None:
        positions = start_positions(self._consumer, partitions, self._start)
        self._consumer.assign(partitions)
        for where, offset in positions.items():
            self._consumer.seek(where, offset)
        self._begin(positions)
        while not self._finished:
            self._read()

    def read_in_group(self, topics: Sequence[str] | re.Pattern[str]) -> None:
        self._consumer.subscribe(topics, on_assigned=self._take_over, on_revoked=self._give_up, on_lost=self._forget)
        committed_at = time.monotonic()
        try:
            while not self._finished:
                self._read()
                if time.monotonic() - committed_at >= COMMIT_INTERVAL_S:
                    self._commit()
                    committed_at = time.monotonic()
        finally:
            self._leave_group()

    def _leave_group(self) -> None:
        """Commit what was written, leave the group, and say so."""
        committed = self._commit(CLOSE_TIMEOUT_S)
        group = self._consumer.group_metadata().group_id
        self._consumer.close(CLOSE_TIMEOUT_S)
        positions = ", ".join(f"{where} at {offset}" for where, offset in sorted(self._committed.items()))
        if not committed:
            what = "could not commit all that was printed, so it will be read again"
        else:
            what = f"committed {positions}" if positions else "nothing to commit"
        self.notify(f"group {group}: {what}; left the group")

    @property
    def _finished(self) -> bool:
        return self._printer.full or (self._ends and self._begun and not self._open)

    # --- what is read -----------------------------------------------------------------------------------------------

    def _begin(self, positions: Mapping[TopicPartition, int]) -> None:
        """These are read from now on, from there."""
        self._begun = True
        self._open |= positions.keys()
        self._starts.update(positions)
        self._next.update(positions)
        if self._ends and positions:
            self._stops.update(stop_positions(self._consumer, list(positions), self._end_ms))
            for where, offset in positions.items():
                if offset >= self._stops[where]:
                    self._read_no_further(where)

    def _take_over(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """After a rebalance: what the group committed wins over -o, except before the first commit."""
        stored = consumer.committed(partitions)
        positions = {where: found.offset for where, found in stored.items() if found is not None}
        fresh = start_positions(consumer, [where for where in partitions if where not in positions], self._start)
        for where, offset in fresh.items():
            consumer.seek(where, offset)
        self._begin(positions | fresh)
        group = consumer.group_metadata()
        names = ", ".join(map(str, sorted(consumer.assignment()))) or "nothing"
        self.notify(f"group {group.group_id} generation {group.generation_id}: assigned {names}")

    def _give_up(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._commit()
        self._forget(_, partitions)

    def _forget(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._open.difference_update(partitions)
        for where in partitions:
            self._done.pop(where, None)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            batch = self._consumer.poll_batch(POLL_S)
        except OffsetOutOfRange:
            self._move_into_range()
            return
        if batch is not None:
            where = TopicPartition(batch.topic, batch.partition)
            with HELD:  # a Ctrl-C between what is printed and what counts as printed would have it printed again
                next_offset = self._printer.print(batch, self._stops.get(where))
                self._done[where] = self._next[where] = next_offset
            self._look_for_end(where, next_offset)
        elif self._ends:
            for where in list(self._open):
                self._look_for_end(where, 0)
        self.progress.show(self._printer.count)

    def _look_for_end(self, where: TopicPartition, next_offset: int) -> None:
        """Read no further behind the stop. What stands in front of it may be no record: markers of transactions."""
        if not self._ends:
            return
        if next_offset >= self._stops[where] or self._consumer.position(where) >= self._stops[where]:
            self._read_no_further(where)

    def _read_no_further(self, where: TopicPartition) -> None:
        self._consumer.pause([where])
        self._open.discard(where)

    def _move_into_range(self) -> None:
        """Retention took what was to be read: go on with what is left."""
        partitions = self._consumer.assignment()
        low, high = self._consumer.beginning_offsets(partitions), self._consumer.end_offsets(partitions)
        for where in partitions:
            offset = self._consumer.position(where)
            if low[where] <= offset <= high[where]:
                continue
            position = low[where] if offset < low[where] else high[where]
            self._consumer.seek(where, position)
            self.notify(f"{where}: offset {offset} is gone, going on at {position}")

    def notify(self, text: str) -> None:
        """Tell the user, unless he wants it quiet."""
        if not self._quiet:
            self.progress.clear()
            notice(f"% {text}")

    def _how_far(self) -> str:
        """On the way to the stops in percent of the offsets; without stops how far behind the ends."""
        if not self._ends:
            lag = self._consumer.health().total_lag
            return "" if lag is None else f"lag {lag:,}"
        total = sum(max(self._stops[where] - start, 0) for where, start in self._starts.items())
        left = sum(self._stops[where] - self._next[where] for where in self._open)
        return f"{100 * (total - left) / total:.0f} %" if total > 0 else ""

    def _commit(self, timeout: float | None = None) -> bool:
        """Commit what was printed; False where the group has moved on, so that others read it again."""
        offsets, self._done = self._done, {}
        if offsets:
            try:
                self._consumer.commit(offsets, timeout)
            except (CommitFailed, RebalanceInProgress):
                return False
            self._committed.update(offsets)
        return True
