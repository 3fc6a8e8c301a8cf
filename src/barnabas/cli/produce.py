"""`barnabas produce`: lines or JSON to records."""

import select
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, BinaryIO

from barnabas.cli.app import App, Argument, Option
from barnabas.cli.formats import unescape
from barnabas.cli.input_records import InputRecord, LineParser, iter_delimited, parse_header, parse_json_record
from barnabas.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT_S, Bootstrap, Json, Timeout, connect
from barnabas.cli.output import CommandFailed, print_json
from barnabas.client.simple_producer import BATCH_BYTES, Delivery, SimpleProducer
from barnabas.errors import UsageError
from barnabas.types import TopicPartition

app = App("Write records from standard input or a file.")

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
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
        str, Option("--acks", choices=tuple(ACKS), help="Who must have a record; all also means idempotent.")
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
    with _open(file) as source, connect(bootstrap, timeout) as cluster:
        producer = SimpleProducer(
            cluster,
            acks=ACKS[acks],
            compression=compression,
            batch_bytes=batch_bytes,
            delivery_timeout_s=timeout,
            create_topics=create,
            on_delivery=report.take,
        )
        with producer:
            _send_all(producer, topic, partition, _records(source, ends, parser, from_json, producer), report)
    report.finish(json, quiet)


def _send_all(
    producer: SimpleProducer, topic: str, partition: int | None, records: Iterator[InputRecord], report: "_Report"
) -> None:
    for record in records:
        producer.send(
            record.topic or topic,
            record.value,
            key=record.key,
            headers=record.headers,
            timestamp=record.timestamp,
            partition=record.partition if partition is None else partition,
        )
        if report.failed is not None:
            return  # what is not written cannot be made good by writing more


def _open(file: str | None) -> BinaryIO:
    if file is None or file == "-":
        return sys.stdin.buffer
    return open(file, "rb", buffering=0)


def _records(
    source: BinaryIO, delimiter: bytes, parser: LineParser, from_json: bool, producer: SimpleProducer
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
        self.failed: Exception | None = None
        self.lost = 0
        self.partitions: dict[TopicPartition, dict[str, int]] = {}

    def take(self, delivery: Delivery) -> None:
        if delivery.error is not None:
            self.failed = self.failed or delivery.error
            self.lost += delivery.record_count
            return
        last = delivery.base_offset + delivery.record_count - 1 if delivery.base_offset >= 0 else -1
        entry = self.partitions.setdefault(
            delivery.partition, {"records": 0, "bytes": 0, "first_offset": delivery.base_offset, "last_offset": last}
        )
        entry["records"] += delivery.record_count
        entry["bytes"] += delivery.size_bytes
        entry["last_offset"] = max(entry["last_offset"], last)

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
