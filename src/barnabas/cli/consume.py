"""`barnabas consume`: print records in kcat's formats or as JSON lines, alone or in a group."""

import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Final

from barnabas.cli.app import App, Argument, Option
from barnabas.cli.formats import ENCODINGS, Renderer, compile_format, record_as_dict
from barnabas.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Json,
    Timeout,
    connect,
    parse_partitions,
)
from barnabas.cli.positions import Start, parse_starts, start_positions, stop_positions
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.group_member import GroupMember
from barnabas.client.simple_consumer import Fetched, SimpleConsumer
from barnabas.errors import UnknownTopicOrPartition, UsageError
from barnabas.records.record import Record
from barnabas.types import TopicPartition

app = App("Read records and print them.")

DEFAULT_FORMAT: Final = "%v\\n"
COMMIT_INTERVAL_S: Final = 5.0
POLL_S: Final = 0.5
CLOSE_TIMEOUT_S: Final = 2.0
"""What Ctrl-C waits for at most, twice: the last commit, and leaving the group."""

Filter = Callable[[Record], bool]


@app.command("")
def consume(
    topics: Annotated[list[str], Argument("TOPIC")],
    format: Annotated[
        str, Option("--format", "-f", help="Of each record: %t %p %o %k %v %h %T %d %K %V %R %%, with \\n \\t \\xHH.")
    ] = DEFAULT_FORMAT,
    offset: Annotated[
        list[str] | None,
        Option("--offset", "-o", metavar="WHERE", help="beginning (default), end, stored, N, -N, s@TIME; and e@TIME."),
    ] = None,
    exit_at_end: Annotated[bool, Option("--exit", "-e", help="Stop at the end as it was when reading began.")] = False,
    count: Annotated[int | None, Option("--count", "-c", minimum=1, help="Stop after so many records.")] = None,
    partitions: Annotated[str | None, Option("--partitions", "-p", metavar="0,2,5-7", help="These only.")] = None,
    grep: Annotated[str | None, Option("--grep", metavar="REGEX", help="Only if key or value matches.")] = None,
    grep_key: Annotated[str | None, Option("--grep-key", metavar="REGEX", help="Only if the key matches.")] = None,
    grep_value: Annotated[
        str | None, Option("--grep-value", metavar="REGEX", help="Only if the value matches.")
    ] = None,
    grep_header: Annotated[
        str | None, Option("--grep-header", metavar="REGEX", help="Only if a header matches, as name=value.")
    ] = None,
    group: Annotated[str | None, Option("--group", "-g", help="Read as a member of this group, and commit.")] = None,
    key_as: Annotated[str, Option("--key-as", choices=tuple(ENCODINGS), help="How %k prints bytes.")] = "raw",
    value_as: Annotated[str, Option("--value-as", choices=tuple(ENCODINGS), help="How %v prints bytes.")] = "raw",
    null: Annotated[bool, Option("--null", "-Z", help="Print NULL for null keys and values.")] = False,
    read_committed: Annotated[
        bool, Option("--read-committed", help="Leave out open and aborted transactions.")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No notices about ends and rebalances.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Read records and print them, from the beginning on; with --group from where the group is.

    TIME is milliseconds, 2013-01-01T05:15:00Z, now, or -1h. Ctrl-C stops; a group's position is committed then.
    """
    start, end_ms = parse_starts(offset or (), time.time_ns() // 1_000_000)
    if group is not None and partitions is not None:
        raise UsageError("--partitions and --group exclude each other: a group assigns partitions itself")
    if start.kind == "stored" and group is None:
        raise UsageError("-o stored: needs --group, whose committed offsets are meant")
    printer = _Printer(
        _json_line if json else compile_format(format, encode_key=key_as, encode_value=value_as, null=b"NULL" * null),
        _filters(grep, grep_key, grep_value, grep_header),
        count,
    )
    with connect(bootstrap, timeout) as cluster:
        reader = _Reader(cluster, printer, read_committed, quiet, timeout)
        stops = exit_at_end or end_ms is not None
        if group is None:
            reader.read_alone(_chosen(cluster, topics, partitions), start, end_ms, stops)
        else:
            reader.read_in_group(group, topics, Start("stored") if offset is None else start, end_ms, stops)


def _chosen(cluster: Cluster, topics: Sequence[str], partitions: str | None) -> list[TopicPartition]:
    """The partitions to read. Raises UnknownTopicOrPartition."""
    chosen = []
    for topic in topics:
        view = cluster.topic(topic)
        numbers = list(view.partitions) if partitions is None else parse_partitions(partitions)
        for number in numbers:
            if number not in view.partitions:
                last = len(view.partitions) - 1
                raise UnknownTopicOrPartition(f"topic {topic!r} has partitions 0 to {last}, not {number}")
            chosen.append(TopicPartition(topic, number))
    return chosen


def _json_line(topic: str, partition: int, record: Record) -> bytes:
    import json

    return json.dumps(record_as_dict(topic, partition, record), ensure_ascii=False).encode() + b"\n"


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

    def __init__(self, render: Renderer, filters: Sequence[Filter], count: int | None) -> None:
        self._render = render
        self._filters = filters
        self._left = count

    @property
    def full(self) -> bool:
        return self._left == 0

    def print(self, fetched: Fetched, stop: int | None) -> int:
        """The next offset to read: behind the last record printed or passed over."""
        topic, partition = fetched.partition
        out: list[bytes] = []
        next_offset = fetched.next_offset
        for record in fetched.records():
            if stop is not None and record.offset >= stop:
                next_offset = stop
                break
            if any(not wanted(record) for wanted in self._filters):
                continue
            out.append(self._render(topic, partition, record))
            if self._left is not None:
                self._left -= 1
                if self._left == 0:
                    next_offset = record.offset + 1
                    break
        sys.stdout.buffer.write(b"".join(out))
        return next_offset


class _Reader:
    """Reads partitions into a printer, alone or as a member of a group."""

    def __init__(
        self, cluster: Cluster, printer: _Printer, read_committed: bool, quiet: bool, timeout_s: float
    ) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._printer = printer
        self._read_committed = read_committed
        self._quiet = quiet
        self._consumer = SimpleConsumer(
            cluster, read_committed=read_committed, on_out_of_range=self._out_of_range, timeout_s=timeout_s
        )
        self._stops: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        """Next offsets of what was printed and not committed yet."""

    def read_alone(self, partitions: Sequence[TopicPartition], start: Start, end_ms: int | None, stops: bool) -> None:
        self._consumer.assign(start_positions(self._admin, partitions, start, {}))
        if stops:
            self._stops = stop_positions(self._admin, partitions, end_ms, read_committed=self._read_committed)
        with self._consumer:
            while not self._finished(stops):
                self._print(self._consumer.poll(POLL_S))

    def read_in_group(
        self, group_id: str, topics: Sequence[str], start: Start, end_ms: int | None, stops: bool
    ) -> None:
        for topic in topics:
            self._cluster.topic(topic)  # unknown topics are refused before the group is troubled
        member = GroupMember(self._cluster, group_id, topics)
        committed_at = time.monotonic()
        try:
            while True:
                assignment = member.keep(lambda: self._commit(member))
                if assignment is not None:
                    self._take_over(member, start, end_ms, stops)
                if self._finished(stops):
                    break
                self._print(self._consumer.poll(POLL_S))
                if time.monotonic() - committed_at >= COMMIT_INTERVAL_S:
                    self._commit(member)
                    committed_at = time.monotonic()
        finally:
            self._consumer.close()
            sys.stdout.flush()  # only what was really written may be committed
            self._commit(member, timeout_s=CLOSE_TIMEOUT_S)
            member.leave(timeout_s=CLOSE_TIMEOUT_S)

    def _take_over(self, member: GroupMember, start: Start, end_ms: int | None, stops: bool) -> None:
        """Positions after a rebalance: what the group committed wins over -o, except before the first commit."""
        partitions = member.assignment
        stored = member.committed()
        fresh = [tp for tp in partitions if tp not in stored]
        positions = {tp: offset for tp, offset in stored.items() if tp in partitions}
        if fresh:
            positions.update(start_positions(self._admin, fresh, start, {}))
        self._consumer.assign(positions)
        self._done.clear()
        if stops:
            known = {tp: offset for tp, offset in self._stops.items() if tp in partitions}
            new = [tp for tp in partitions if tp not in known]
            asked = stop_positions(self._admin, new, end_ms, read_committed=self._read_committed) if new else {}
            self._stops = known | asked
        if not self._quiet:
            names = ", ".join(map(str, partitions)) or "nothing"
            print(f"% group {member.group_id} generation {member.generation_id}: assigned {names}", file=sys.stderr)

    def _commit(self, member: GroupMember, timeout_s: float = 10.0) -> None:
        offsets = {tp: offset for tp, offset in self._done.items() if tp in member.assignment}
        if offsets and member.commit(offsets, timeout_s=timeout_s):
            self._done.clear()

    def _print(self, fetched: Sequence[Fetched]) -> None:
        for part in fetched:
            if self._printer.full:
                break
            self._done[part.partition] = self._printer.print(part, self._stops.get(part.partition))
        if fetched:
            sys.stdout.buffer.flush()

    def _finished(self, stops: bool) -> bool:
        if self._printer.full:
            return True
        if not stops:
            return False
        positions = self._consumer.positions
        for tp in [tp for tp, offset in positions.items() if offset >= self._stops[tp]]:
            del positions[tp]
        return not positions

    def _out_of_range(self, where: TopicPartition, offset: int) -> int:
        """Retention took what was to be read: go on with what is left."""
        low, high = self._admin.watermarks([where])[where]
        position = low if offset < low else high
        if not self._quiet:
            print(f"% {where}: offset {offset} is gone, going on at {position}", file=sys.stderr)
        return position
