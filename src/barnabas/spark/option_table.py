# ruff: noqa: E501 -- the table of options reads as rows
"""The names of all options of `format("barnabas")`, in Spark's spelling, and what each is for.

Spark hands options over in lower case. Names that begin with `kafka.` are settings of the client and not listed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.config.definitions import nearest
from barnabas.errors import UsageError

__all__ = [
    "KAFKA",
    "SINK_OPTIONS",
    "SOURCE_OPTIONS",
    "Option",
    "check_names",
    "parse_bool",
    "parse_choice",
    "parse_count",
    "parse_duration_ms",
]

KAFKA: Final = "kafka."


class Option(NamedTuple):
    """One option; `default` as the documentation shows it."""

    name: str
    default: str
    doc: str


SOURCE_OPTIONS: Final = (
    Option("bootstrap.servers", "", "Where the brokers are: `host:port`, with commas between. The same as `kafka.bootstrap.servers`."),
    Option("subscribe", "", "Topics to read, with commas between."),
    Option("subscribePattern", "", "A regular expression that whole names of topics match; topics that come later are read, too."),
    Option("assign", "", 'Partitions to read: `{"orders": [0, 1]}`.'),
    Option("segments", "", "Batch reads without a broker: a data directory, a partition's directory, segment files or patterns of them, with commas between. See [log directories](#log-directories-without-a-broker)."),
    Option("startingOffsets", "latest; earliest in batch reads", '`earliest`, `latest`, `group` (what the group of `groupIdForLag` or `kafka.group.id` has committed) or `{"orders": {"0": 23, "1": -2}}`, where -2 is the beginning and -1 the end. Counts when a query begins for the first time; partitions that are new later are read from their beginning.'),
    Option("startingOffsetsByTimestamp", "", 'The first records at or after a time in ms: `{"orders": {"0": 1735689600000}}`. Goes before `startingOffsets`.'),
    Option("startingTimestamp", "", "The same for all partitions: a time in ms. Goes before the other two."),
    Option("startingOffsetsByTimestampStrategy", "error", "What to do where no record is so new: `error`, or `latest`, which begins at the end."),
    Option("endingOffsets", "latest", "Batch reads: where to stop, written as `startingOffsets` without `earliest` and -2."),
    Option("endingOffsetsByTimestamp", "", "Batch reads: stop before the first record at or after a time, written as `startingOffsetsByTimestamp`. Where no record is so new: at the end."),
    Option("endingTimestamp", "", "The same for all partitions. Goes before the other two."),
    Option("maxOffsetsPerTrigger", "no limit", "Most offsets of one micro-batch, spread over the partitions in proportion to what they have."),
    Option("maxBytesPerTrigger", "no limit", "The same in bytes as stored, by the mean size that each partition's records have on disk."),
    Option("minOffsetsPerTrigger", "1", "A micro-batch waits until there are so many offsets, `maxTriggerDelay` at most."),
    Option("maxTriggerDelay", "15m", "How long a micro-batch waits for `minOffsetsPerTrigger`: `30s`, `15 minutes`, `1h`; a number alone is milliseconds."),
    Option("minPartitions", "as many as there are partitions", "At least so many tasks: ranges of offsets with many bytes (offsets times the mean size of the partition's records) are cut; files of `segments` at places that their offset indexes know. Without it partitions that have few new records, 500 together, share a task."),
    Option("maxRecordsPerPartition", "no limit", "Most offsets of one task: larger ranges are cut."),
    Option("failOnDataLoss", "true", "`false` is the same as `onDataLoss=warn`."),
    Option("onDataLoss", "fail", "What to do about offsets that are gone (retention, a topic that was deleted or made again): `fail`, `warn` (go on, and log the exact ranges), `skip` (go on, and log them at level INFO), `dlq` (as `warn`, and write them to `dataLossTopic`)."),
    Option("dataLossTopic", "", "`onDataLoss=dlq`: the topic that has a record for each lost range, `{\"topic\": …, \"partition\": …, \"from\": …, \"to\": …, \"reason\": …}`, both offsets included, `to` null where a topic is gone; written before the query goes on, and again if that is repeated."),
    Option("includeHeaders", "false", "Whether there is a column `headers`."),
    Option("isolationLevel", "read_uncommitted", "`read_committed` leaves out records of transactions that were aborted or are still open. The same as `kafka.isolation.level`."),
    Option("pollTimeoutMs", "500", "How long a query without anything to do waits for new records before it looks after other things."),
    Option("kafkaConsumer.pollTimeoutMs", "120000", "How long a task waits for records of its range before it fails."),
    Option("filterPushdown", "false", "Batch reads: conditions on topic, partition and offset, and lower bounds of the timestamp, decide what is read at all. Needs `spark.sql.python.filterPushdown.enabled=true`. Spark up to 4.3 hands what one query has left out to the next one that uses the same DataFrame or view without conditions, which then lacks rows: make a DataFrame for each query."),
    Option("valueFormat", "binary", "What values are: `binary`, `string`, `json`, `avro`, `confluent-avro` or `protobuf`. See [values with types](#values-with-types)."),
    Option("valueSchema", "", "The schema of values. `json`: a Spark type, `id bigint, name string`, or the JSON of one; found out from the newest records without it. `avro`, `confluent-avro`: the JSON of an Avro schema, for the latter that of the reader (default: the latest one that the registry has for the topic). `protobuf`: the path of descriptors, as `protoc --include_imports --descriptor_set_out` writes them."),
    Option("messageName", "", "`protobuf`: the full name of the message, `shop.Order`."),
    Option("mode", "PERMISSIVE", "What becomes of a value that does not parse: with `PERMISSIVE` `value` is null and column `_corrupt` has its bytes, with `FAILFAST` the query fails and names the record."),
    Option("keyFormat", "binary", "What keys are: `binary`, or `string`, where bytes that are not UTF-8 are shown as U+FFFD."),
    Option("timeZone", "UTC", "`json`: the zone of times that say none."),
    Option("sampleSize", "1000", "`json` without a schema: how many of the newest records it is found out from."),
    Option("schema.registry.url", "", "`confluent-avro`: where the schemas are, `http://host:8081`; several with commas between."),
    Option("schema.registry.basic.auth.user.info", "", "`confluent-avro`: `user:password`."),
    Option("schema.registry.timeout.ms", "10000", "`confluent-avro`: how long one question to the registry may take."),
    Option("groupIdForLag", "", "A group to commit the offsets of finished micro-batches for, so that Kafka's tools show the query's lag. The query itself goes by its checkpoint alone. Nothing else may use the group."),
    Option("groupIdPrefix", "", "Taken and without effect: nothing here needs a group."),
    Option("fetchOffset.numRetries", "", "Taken and without effect: questions for offsets are repeated until `kafka.default.api.timeout.ms` is over."),
    Option("fetchOffset.retryIntervalMs", "", "Taken and without effect."),
)  # fmt: skip

SINK_OPTIONS: Final = (
    Option("topic", "column topic", "Where records go. Without it each row names its topic in a column `topic`; with it that column is left out of account."),
    Option("exactlyOnce", "two-phase", "`two-phase`: every row is seen once by read_committed readers, whatever fails and is repeated. `none`: rows may come twice when tasks or batches are repeated; without transactions."),
    Option("txnAppId", "", "Batch writes, above all in `foreachBatch`: who writes. A version that was written under this name is not written again."),
    Option("txnVersion", "", "What `txnAppId` writes, a number that grows: the id of the batch in `foreachBatch`."),
    Option("generation", "", "A whole number that each record gets in a header `generation`: one more with each full refresh, so that readers can tell the new rows from the old ones."),
)  # fmt: skip

_NAMES: Final = {option.name.lower(): option.name for option in (*SOURCE_OPTIONS, *SINK_OPTIONS)}


def check_names(options: Mapping[str, str]) -> None:
    """Raises UsageError for an option that does not exist. A source takes a sink's options and the other way round,
    because a temporary view has one set for both."""
    for given in options:
        name = given.lower()
        if name in _NAMES or name in _SPARKS or name.startswith(KAFKA):
            continue
        if name == "path":
            raise UsageError(
                "option path is not one of barnabas: name topics by option subscribe and call load() without"
            )
        close = nearest(name, _NAMES) or nearest(name, [KAFKA + known for known in _CLIENT_NAMES])
        hint = (
            f"did you mean {_NAMES.get(close, close)}?" if close else f"there are {', '.join(sorted(_NAMES.values()))}"
        )
        raise UsageError(f"option {given} does not exist: {hint} (settings of the client begin with {KAFKA})")


_SPARKS: Final = ("checkpointlocation", "queryname", "outputmode")
"""Options of Spark's own, which it passes on with a stream's options."""
_CLIENT_NAMES: Final = ("bootstrap.servers", "group.id", "isolation.level", "client.id", "security.protocol")


def parse_count(text: str, option: str, *, least: int = 1) -> int:
    """Parses a whole number. Raises UsageError."""
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 18) or int(stripped) < least:
        raise UsageError(f"option {option}={text!r} must be a whole number from {least} on")
    return int(stripped)


def parse_bool(text: str, option: str) -> bool:
    """Parses `true` or `false`. Raises UsageError."""
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise UsageError(f"option {option}={text!r} must be true or false")
    return value == "true"


def parse_choice(given: Mapping[str, str], option: str, choices: Sequence[str]) -> str:
    """Returns one of the choices, out of options with names in lower case; the first is the default. Raises
    UsageError."""
    value = given.get(option.lower(), choices[0]).strip().lower()
    if value not in choices:
        raise UsageError(f"option {option}={value!r} must be one of {', '.join(choices)}")
    return value


_DURATION: Final = re.compile(r"(?=\.?\d)(\d{0,12}(?:\.\d{0,6})?)\s*([a-z]*)", re.ASCII)
_UNITS_MS: Final = {
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


def parse_duration_ms(text: str, named: str, *, bare: bool = True) -> int:
    """Parses a time in Spark's spelling, `15m` or `15 minutes`; a number alone is milliseconds, or, without `bare`,
    wrong. Raises UsageError."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS_MS or not (bare or found[2]):
        last = "a number alone is milliseconds" if bare else "a number needs its unit"
        raise UsageError(f"{named}={text!r} must be a time: 500 ms, 30s, '10 seconds', 15m, '2 hours', 1d; {last}")
    return round(float(found[1]) * _UNITS_MS[found[2]])
