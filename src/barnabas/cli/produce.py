"""`barnabas produce`: lines or JSON to records."""

import select
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, BinaryIO, Final

from barnabas import Admin, Producer
from barnabas.cli.app import App, Argument, Option
from barnabas.cli.formats import unescape
from barnabas.cli.input_records import InputRecord, LineParser, iter_delimited, parse_header, parse_json_record
from barnabas.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Client,
    Json,
    Timeout,
    client_settings,
    connect_admin,
)
from barnabas.cli.output import CommandFailed, print_json
from barnabas.client.core.producer.batch import RecordMetadata
from barnabas.client.errors import ItemsFailed
from barnabas.errors import UnknownTopicOrPartition, UsageError
from barnabas.types import TopicPartition

app = App("Write records from standard input or a file.")

ACKS = ("all", "-1", "1", "0")
BATCH_BYTES: Final = 256 * 1024
BUFFER_BYTES: Final = 128 * 1024 * 1024
"""Records in memory, and with it the largest one."""
LINGER_MS: Final = 5
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@app.command("")
def produce(
    topic: Annotated[str, Argument("TOPIC")],
    file: Annotated[
        str | None, Option("--file", "-f", metavar="FILE", help="Read it instead of standard input.")
    ] = None,
    key_separator: Annotated[
        str | None, Option("--key-separator", "-K", metavar="TEXT", help="What stands between key and value.")
    ] = None,
    key: Annotated[str | None, Option("--key", "-k", help="One key for all records without their own.")] = None,
    header: Annotated[
        list[str] | None, Option("--header", "-H", metavar="NAME=VALUE", help="On every record; repeat for more.")
    ] = None,
    partition: Annotated[int | None, Option("--partition", "-p", help="Instead of the key's murmur2 hash.")] = None,
    compression: Annotated[str, Option("--compression", "-z", choices=CODECS, help="Of batches.")] = "none",
    acks: Annotated[
        str, Option("--acks", choices=ACKS, help="Who must have a record; all also means idempotent.")
    ] = "all",
    from_json: Annotated[
        bool, Option("--from-json", help="Each line is an object as `consume --json` prints it.")
    ] = False,
    delimiter: Annotated[str, Option("--delimiter", "-D", metavar="TEXT", help="What ends a record.")] = "\\n",
    empty_is_null: Annotated[
        bool, Option("--null", "-Z", help="Empty keys and values become null (tombstones).")
    ] = False,
    create: Annotated[bool, Option("--create", help="Let the broker create the topic if it does not exist.")] = False,
    batch_bytes: Annotated[int, Option("--batch-bytes", minimum=1, help="Largest batch.")] = BATCH_BYTES,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No summary.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    client: Client = None,
    json: Json = False,
) -> None:
    """Write records, one a line, and wait until they are acknowledged.

    Lines that come slowly are sent at once; lines that come fast are sent in batches.
    """
    parser = LineParser(
        None if key_separator is None else unescape(key_separator),
        None if key is None else key.encode(),
        tuple(map(parse_header, header or ())),
        empty_is_null,
    )
    report = _Report(topic)
    ends = unescape(delimiter)
    if not ends:
        raise UsageError("--delimiter: must not be empty, such as \\n or \\0")
    settings = producer_settings(
        bootstrap, timeout, client, acks=acks, compression=compression, batch_bytes=batch_bytes
    )
    with (
        _open(file) as source,
        connect_admin(bootstrap, timeout, client, beside_another=True) as admin,
        Producer(settings) as producer,
    ):
        topics = _Topics(None if create else admin)
        for record in _records(source, ends, parser, from_json, producer):
            name = record.topic or topic
            number = record.partition if partition is None else partition
            topics.check(name, number)
            size = len(record.key or b"") + len(record.value or b"")
            producer.send(
                name,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp=record.timestamp,
                partition=number,
                on_delivery=partial(report.take, size),
            )
            if report.failed is not None:
                break  # what is not written cannot be made good by writing more
    report.finish(json, quiet)


def producer_settings(
    bootstrap: str,
    timeout: float,
    client: list[str] | None,
    *,
    acks: str,
    compression: str,
    batch_bytes: int,
    linger_ms: int = LINGER_MS,
) -> dict[str, object]:
    """A producer's that waits for `timeout` seconds and takes what a line can hold."""
    timeout_ms = int(timeout * 1000)
    return {
        **client_settings(bootstrap, timeout, client),
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


class _Topics:
    """Refuses topics and partitions that are not there, at once: a producer would wait for them to appear."""

    def __init__(self, admin: Admin | None) -> None:
        """None: anything goes, the broker makes topics."""
        self._admin = admin
        self._counts: dict[str, int] = {}

    def check(self, topic: str, partition: int | None) -> None:
        """Raises UsageError, UnknownTopicOrPartition."""
        if self._admin is None:
            return
        count = self._counts.get(topic) or self._look_up(self._admin, topic)
        if partition is not None and not 0 <= partition < count:
            raise UnknownTopicOrPartition(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")

    def _look_up(self, admin: Admin, topic: str) -> int:
        try:
            count = self._counts[topic] = len(admin.describe_topics(topic)[topic].partitions)
        except ItemsFailed as error:
            if not error.only(UnknownTopicOrPartition):
                raise
            way_out = f"create it first with `barnabas topics create {topic}`"
            raise UsageError(f"topic {topic!r} does not exist; {way_out}") from None
        return count


def _open(file: str | None) -> BinaryIO:
    if file is None or file == "-":
        return sys.stdin.buffer
    return open(file, "rb", buffering=0)


def _records(
    source: BinaryIO, delimiter: bytes, parser: LineParser, from_json: bool, producer: Producer
) -> Iterator[InputRecord]:
    parse: Callable[[bytes, int], InputRecord] = parse_json_record if from_json else lambda line, _: parser.parse(line)
    for number, (line, more) in enumerate(iter_delimited(source, delimiter), 1):
        if line or not from_json:
            yield parse(line, number)
        if not more and not _readable(source):
            producer.flush()


def _readable(source: BinaryIO) -> bool:
    """Whether the next line (or the end) is there already: otherwise somebody types, and waits for what he typed."""
    return bool(select.select([source], [], [], 0)[0])


class _Report:
    """What was acknowledged, by partition, as the broker's answers say."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.failed: BaseException | None = None
        self.lost = 0
        self.partitions: dict[TopicPartition, dict[str, int]] = {}

    def take(self, size: int, error: BaseException | None, metadata: RecordMetadata) -> None:
        """What became of a record with so many bytes of key and value."""
        if error is not None:
            self.failed = self.failed or error
            self.lost += 1
            return
        where, offset = TopicPartition(metadata.topic, metadata.partition), metadata.offset
        entry = self.partitions.get(where)
        if entry is None:
            entry = {"records": 0, "bytes": 0, "first_offset": offset, "last_offset": offset}
            self.partitions[where] = entry
        entry["records"] += 1
        entry["bytes"] += size
        entry["last_offset"] = max(entry["last_offset"], offset)

    def finish(self, as_json: bool, quiet: bool) -> None:
        records = sum(entry["records"] for entry in self.partitions.values())
        if as_json:
            print_json(self._as_dict(records))
        elif not quiet:
            places = ", ".join(
                f"{tp.partition}: {e['first_offset']}-{e['last_offset']}" for tp, e in sorted(self.partitions.items())
            )
            more = f" (partition: offsets {places})" if places else ""
            print(f"{records} record{'s' if records != 1 else ''} to {self.topic}{more}", file=sys.stderr)
        if self.failed is not None:
            raise CommandFailed(f"{self.lost} records were not written: {self.failed}") from self.failed

    def _as_dict(self, records: int) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "records": records,
            "failed": self.lost,
            "error": None if self.failed is None else str(self.failed),
            "partitions": [
                {"topic": tp.topic, "partition": tp.partition, **entry} for tp, entry in sorted(self.partitions.items())
            ],
        }
