"""`barnabas produce`: writes lines or JSON objects as records."""

import sys
import time
from collections import deque
from typing import Annotated, Any, BinaryIO, Final

from barnabas import Admin, Producer
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.output import CommandFailed, notice, print_json
from barnabas.cli.framework.progress import Progress
from barnabas.cli.framework.resources import check_topic_name
from barnabas.cli.framework.streams import is_readable
from barnabas.cli.records.formats import unescape
from barnabas.cli.records.input_records import JsonParser, LineParser, LineReader, Rows, check_partition, parse_header
from barnabas.client.errors import ItemsFailed, RecordsFailed
from barnabas.client.producer.bulk.delivery import Delivery
from barnabas.errors import BarnabasError, UnknownTopicOrPartition, UsageError

app = App("Write records from standard input or a file.")

ACKS = ("all", "-1", "1", "0")
BATCH_BYTES: Final = 256 * 1024
BUFFER_BYTES: Final = 128 * 1024 * 1024
"""The memory for records, and with it the size of the largest one."""
LINGER_MS: Final = 5
UNDER_WAY_MAX: Final = 4096
"""The most blocks of lines, however small, that are sent and not acknowledged."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Acks = Annotated[
    str,
    Option(
        choices=ACKS,
        help="Which replicas must have a record: all in sync (and no duplicates), the leader (1), none (0).",
    ),
]
Compression = Annotated[str, Option("-z", choices=CODECS, help="How batches are compressed.")]
BatchBytes = Annotated[int, Option(minimum=1, help="The size of the largest batch, in bytes.")]


@app.command(
    "",
    example="printf 'k1:first\\nk2:second\\n' | barnabas produce orders --key-separator :\n"
    "barnabas produce orders --file orders.jsonl --from-json",
)
def produce(
    topic: Annotated[str, Argument("TOPIC", "The topic to write to.", check=check_topic_name)],
    file: Annotated[
        str | None,
        Option("-f", metavar="FILE", takes_bytes=True, help="Read records from this file instead of standard input."),
    ] = None,
    key_separator: Annotated[
        str | None,
        Option(
            "-K", metavar="TEXT", takes_bytes=True, help="The text between key and value of a line, such as : or \\t."
        ),
    ] = None,
    key: Annotated[
        str | None, Option("-k", takes_bytes=True, help="The key of all records that have none of their own.")
    ] = None,
    header: Annotated[
        list[str] | None,
        Option("-H", metavar="NAME=VALUE", takes_bytes=True, help="A header for every record; repeat for more."),
    ] = None,
    partition: Annotated[
        int | None, Option("-p", help="Write to this partition, instead of the one that the key's hash chooses.")
    ] = None,
    compression: Compression = "none",
    acks: Acks = "all",
    from_json: Annotated[
        bool,
        Option(
            help="Each line is an object as `consume --json` prints it. It goes to TOPIC, also if it names another one;"
            " to the partition that it names only if it names no other topic."
        ),
    ] = False,
    delimiter: Annotated[
        str, Option("-D", metavar="TEXT", takes_bytes=True, help="The text that ends a record.")
    ] = "\\n",
    empty_is_null: Annotated[
        bool, Option("--null", "-Z", help="Empty keys and values become null (tombstones).")
    ] = False,
    create: Annotated[bool, Option(help="Let the broker create the topic if it does not exist.")] = False,
    batch_bytes: BatchBytes = BATCH_BYTES,
    quiet: Annotated[bool, Option("-q", help="No summary and no progress.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Write records, one a line, and wait until they are acknowledged.

    Lines that come slowly are sent at once; lines that come fast are sent in batches. An invalid line ends the command,
    which prints the number of the line and of the records written before it. A progress line is shown on a terminal.
    """
    ends = unescape(delimiter)
    if not ends:
        raise UsageError("--delimiter: must not be empty, such as \\n or \\0")
    if key_separator == "":
        raise UsageError("--key-separator: must not be empty, such as : or \\t")
    parser: LineParser | JsonParser
    if from_json:
        if key_separator is not None or key is not None or header or empty_is_null:
            raise UsageError("--from-json: lines say key, value and headers themselves; leave out -K, -k, -H and -Z")
        parser = JsonParser(topic, partition)
    else:
        parser = LineParser(
            None if key_separator is None else unescape(key_separator),
            None if key is None else key.encode("utf-8", "surrogateescape"),
            tuple(map(parse_header, header or ())),
            empty_is_null,
            partition,
        )
    report = _Report(topic, json, quiet)
    with _open(file) as source:
        began = time.monotonic()
        if not create:
            with cluster.admin(beside_another=True) as admin:
                count = _partition_count(admin, topic)
            check_partition(topic, partition, count)
            if isinstance(parser, JsonParser):
                parser = parser._replace(partition_count=count)
        left = cluster.after(time.monotonic() - began)
        settings = producer_settings(left, acks=acks, compression=compression, batch_bytes=batch_bytes)
        reader = LineReader(source, ends)
        # no progress line while a person types the records
        with Progress(lambda: _progress_text(reader), shown=not quiet and not source.isatty()) as progress:
            _write(Producer(settings), reader, parser, report, progress)
    report.finish()


def _write(
    producer: Producer, reader: LineReader, parser: LineParser | JsonParser, report: "_Report", progress: Progress
) -> None:
    """Sends the lines until their end or the first failure, and has the report note the results."""
    try:
        with producer:
            try:
                for lines in reader:
                    for rows in parser.parse(lines, reader.line_count - len(lines) + 1):
                        report.follow(producer, rows)
                    if reader.is_idle(LINGER_MS / 1000):
                        report.wait()
                    if report.failed is not None:
                        break  # later records do not replace a lost one
                    progress.show(report.records)
            except (UsageError, UnknownTopicOrPartition) as error:
                report.refused = error
            report.wait()
    except BaseException as error:  # after Ctrl-C, too: unsent records are lost
        progress.clear()
        report.stop(error)
        raise


def _progress_text(reader: LineReader) -> str:
    """Returns the share of a file that is read; nothing for input without a size."""
    size = reader.size_bytes
    return f"{100 * reader.bytes_read / size:.0f} %" if size else ""


def producer_settings(
    cluster: Cluster, *, acks: str, compression: str, batch_bytes: int, linger_ms: int = LINGER_MS
) -> dict[str, object]:
    """Returns the settings of a producer that waits for the cluster's timeout and takes long records."""
    timeout_ms = int(cluster.timeout * 1000)
    return {
        **cluster.settings(),
        "acks": acks,
        "compression.type": compression,
        "batch.size": batch_bytes,
        "linger.ms": linger_ms,
        "max.block.ms": timeout_ms,
        "delivery.timeout.ms": timeout_ms,
        "request.timeout.ms": max(timeout_ms - linger_ms, 1),
        "max.request.size": BUFFER_BYTES,
        "buffer.memory": BUFFER_BYTES,
    }


def _partition_count(admin: Admin, topic: str) -> int:
    """Raises CommandFailed for a topic that does not exist; a producer would wait for it to appear."""
    try:
        return len(admin.describe_topics(topic)[topic].partitions)
    except ItemsFailed as error:
        if not error.only(UnknownTopicOrPartition):
            raise
        way_out = f"create it first with `barnabas topics create {topic}`"
        raise CommandFailed(f"topic {topic!r} does not exist; {way_out}") from None


def _open(file: str | None) -> BinaryIO:
    if file is None or file == "-":
        if not is_readable(sys.stdin):
            raise UsageError("standard input is closed; give records by a pipe, or --file FILE")
        return sys.stdin.buffer
    return open(file, "rb", buffering=0)


class _Report:
    """Counts the acknowledged records by partition."""

    def __init__(self, topic: str, as_json: bool, quiet: bool) -> None:
        self.records = 0
        """The number of acknowledged records."""
        self.failed: BaseException | None = None
        self.refused: BarnabasError | None = None
        """The reason why a line is not a valid record, which ends the command."""
        self._topic = topic
        self._as_json = as_json
        self._quiet = quiet
        self._lost = 0
        self._lost_line = 0
        """The line of the record that `failed` is about, or 0."""
        self._size_bytes = 0
        self._partitions: dict[int, dict[str, int]] = {}
        self._under_way: deque[tuple[Delivery, Rows]] = deque()

    def follow(self, producer: Producer, rows: Rows) -> None:
        """Sends the rows, and settles the deliveries that are done."""
        try:
            delivery = producer.send_many(
                self._topic,
                rows.values,
                keys=rows.keys,
                headers=rows.headers,
                timestamps=rows.timestamps,
                partition=rows.partition,
            )
        except RecordsFailed as error:  # the last rows were not taken in time
            delivery = error.delivery
        self._under_way.append((delivery, rows))
        if len(self._under_way) > UNDER_WAY_MAX:
            self._settle()
        self._settle_done()

    def wait(self) -> None:
        """Waits until all deliveries are settled."""
        while self._under_way:
            self._settle()

    def stop(self, error: BaseException) -> None:
        """Reports the acknowledged records after an error has ended the producer."""
        self._settle_done()
        self.failed = self.failed or error
        self._print()

    def _settle_done(self) -> None:
        while self._under_way and self._under_way[0][0].done():
            self._settle()

    def _settle(self) -> None:
        """Waits for the oldest delivery, and counts its records."""
        delivery, rows = self._under_way[0]
        failure = delivery.exception()
        self._under_way.popleft()
        for sent in delivery.result() if failure is None else failure.sent:
            self.records += sent.record_count
            entry = self._partitions.setdefault(sent.partition, {"records": 0, "first_offset": -1, "last_offset": -1})
            entry["records"] += sent.record_count
            if sent.offset >= 0:  # acks=0 gives no offset
                first = entry["first_offset"]
                entry["first_offset"] = sent.offset if first < 0 else min(first, sent.offset)
                entry["last_offset"] = max(entry["last_offset"], sent.offset + sent.record_count - 1)
        failed = () if failure is None else failure.failed
        for part in failed:
            self._lost += len(part.rows)
            if self.failed is None:
                self.failed, self._lost_line = part.error, rows.lines[part.rows[0]]
        if self._as_json:
            self._size_bytes += rows.size_bytes(range(len(rows.values)))
            self._size_bytes -= sum(rows.size_bytes(part.rows) for part in failed)

    def finish(self) -> None:
        """Reports the acknowledged records. Raises the error of the others."""
        if self.failed is None and self.refused is not None:
            before = f"{_were(self.records)} written before it" if self.records else "nothing was written"
            self.refused = type(self.refused)(f"{self.refused}; {before}")
        self._print()
        if self.failed is not None:
            text = f"{_were(self._lost)} not written; input line {self._lost_line}: {self.failed}"
            raise CommandFailed(text) from self.failed
        if self.refused is not None:
            raise self.refused

    def _print(self) -> None:
        if self._as_json:
            print_json(self._as_dict())
        elif not self._quiet:
            places = ", ".join(
                f"{partition}: {entry['first_offset']}-{entry['last_offset']}"
                for partition, entry in sorted(self._partitions.items())
            )
            more = f" (partition: offsets {places})" if places else ""
            notice(f"{_records(self.records)} to {self._topic}{more}")

    def _as_dict(self) -> dict[str, Any]:
        error = self.failed or self.refused
        return {
            "topic": self._topic,
            "records": self.records,
            "bytes": self._size_bytes,
            "failed": self._lost,
            "error": None if error is None else str(error) or type(error).__name__,
            "partitions": [
                {"topic": self._topic, "partition": partition, **entry}
                for partition, entry in sorted(self._partitions.items())
            ],
        }


def _records(count: int) -> str:
    return f"{count} record{'s' * (count != 1)}"


def _were(count: int) -> str:
    return f"{_records(count)} {'was' if count == 1 else 'were'}"
