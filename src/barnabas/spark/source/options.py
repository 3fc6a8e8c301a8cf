"""The options of a read: which partitions, from which offsets to which, in what portions.

Names and rules are those of Spark's Kafka connector. Errors are UsageErrors that name the option, the rule and the way
out.
"""

import logging
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.client.settings import ConsumerSettings, ProducerSettings
from barnabas.errors import UsageError
from barnabas.spark.option_table import KAFKA, check_names, parse_bool, parse_choice, parse_count, parse_duration_ms
from barnabas.spark.source.data_loss import DEAD_LETTERS, OnLoss
from barnabas.spark.source.offsets import EARLIEST, LATEST, parse_offsets, parse_partitions, parse_times
from barnabas.types import TopicPartition

__all__ = ["Limits", "Position", "SourceOptions", "Subscription", "client_settings"]

_log = logging.getLogger("barnabas.spark")

_MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
_POLL_TIMEOUT_MS: Final = 500
_FETCH_TIMEOUT_MS: Final = 120_000
_ON_DATA_LOSS: Final = ("fail", "warn", "skip", DEAD_LETTERS)

_REFUSED: Final = {
    "auto.offset.reset": "offsets are Spark's: say where to begin by option startingOffsets",
    "enable.auto.commit": "offsets are Spark's: option groupIdForLag commits them for tools that show lag",
    "interceptor.classes": "they could change records",
    "key.deserializer": "keys are binary columns: convert them in the query",
    "value.deserializer": "values are binary columns: convert them in the query",
}
"""Settings of the client that a query must not change."""


class Subscription(NamedTuple):
    """The partitions that a query reads: topics, a pattern of topic names, or partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


class Position(NamedTuple):
    """The offsets to begin or to stop at, and the option that has them."""

    kind: str
    """earliest, latest, offsets, time, times or group."""
    option: str
    offsets: Mapping[TopicPartition, int] = {}
    """Offsets or, with `times`, milliseconds."""
    time_ms: int = 0


class Limits(NamedTuple):
    """The most that a micro-batch and a task may have, and the least of a micro-batch; 0: no limit."""

    max_offsets: int = 0
    max_bytes: int = 0
    min_offsets: int = 0
    max_delay_ms: int = _MAX_TRIGGER_DELAY_MS
    min_partitions: int = 0
    max_records: int = 0


class SourceOptions(NamedTuple):
    """All of a read's options."""

    client: Mapping[str, str]
    """Settings of the client under Kafka's names, checked."""
    subscription: Subscription
    starting: Position
    ending: Position
    begins_at_end: bool
    """Whether to begin at the end where no record is as new as the starting time."""
    limits: Limits
    on_data_loss: OnLoss
    include_headers: bool
    filter_pushdown: bool
    poll_timeout_ms: int
    fetch_timeout_ms: int
    group_id: str | None
    """The group of startingOffsets=group."""
    group_id_for_lag: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> "SourceOptions":
        """Raises UsageError."""
        check_names(options)
        given = {name.lower(): value for name, value in options.items()}
        client = _client(given)
        group_id = client.pop("group.id", None)
        lag_group = given.get("groupidforlag", "").strip() or None
        starting, ending = _starting(given, streaming=streaming), _ending(given, streaming=streaming)
        if starting.kind == "group" and not (lag_group or group_id):
            raise UsageError(
                f"option {starting.option}=group needs to know the group: give groupIdForLag or kafka.group.id"
            )
        return cls(
            client=client,
            subscription=_subscription(given),
            starting=starting,
            ending=ending,
            begins_at_end=parse_choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
            limits=_limits(given, streaming=streaming),
            on_data_loss=_on_data_loss(given, client),
            include_headers=parse_bool(given.get("includeheaders", "false"), "includeHeaders"),
            filter_pushdown=parse_bool(given.get("filterpushdown", "false"), "filterPushdown"),
            poll_timeout_ms=_count(given, "pollTimeoutMs", _POLL_TIMEOUT_MS, least=0),
            fetch_timeout_ms=_count(given, "kafkaConsumer.pollTimeoutMs", _FETCH_TIMEOUT_MS),
            group_id=group_id or lag_group,
            group_id_for_lag=lag_group,
        )


# --- the client -------------------------------------------------------------------------------------------------------


def client_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of the client: the options that begin with `kafka.`, and the addresses of brokers. `given`
    has names in lower case. Raises UsageError."""
    client = {name.removeprefix(KAFKA): value for name, value in given.items() if name.startswith(KAFKA)}
    _same(client, given, "bootstrap.servers", "bootstrap.servers")
    if not client.get("bootstrap.servers", "").strip():
        raise UsageError("option bootstrap.servers is missing: where are the brokers? Write host:port")
    return client


def _client(given: Mapping[str, str]) -> dict[str, str]:
    client = client_settings(given)
    _same(client, given, "isolation.level", "isolationLevel")
    for name, reason in _REFUSED.items():
        if name in client:
            raise UsageError(f"option {KAFKA}{name} cannot be used: {reason}")
    writers = set(ProducerSettings.definitions.names()) - set(ConsumerSettings.definitions.names())
    client = {name: value for name, value in client.items() if name not in writers}
    try:
        ConsumerSettings(client)
    except UsageError as error:
        raise UsageError(f"the options that begin with {KAFKA}: {error}") from None
    return client


def _same(client: dict[str, str], given: Mapping[str, str], setting: str, option: str) -> None:
    """Merges an option that is another name for a setting of the client."""
    ours, theirs = given.get(option.lower()), client.get(setting)
    if ours is None:
        return
    if theirs is not None and theirs.strip() != ours.strip():
        raise UsageError(
            f"options {option}={ours} and {KAFKA}{setting}={theirs} contradict each other; give one of them"
        )
    client[setting] = ours


# --- which partitions -------------------------------------------------------------------------------------------------


def _subscription(given: Mapping[str, str]) -> Subscription:
    names = ("subscribe", "subscribePattern", "assign")
    there = [name for name in names if name.lower() in given]
    if len(there) != 1:
        which = f"{' and '.join(there)} are given" if there else "none is given"
        raise UsageError(f"exactly one of the options {', '.join(names)} says what to read; {which}")
    option = there[0]
    text = given[option.lower()].strip()
    if option == "assign":
        return Subscription(partitions=parse_partitions(text, option))
    if option == "subscribe":
        topics = tuple(dict.fromkeys(topic for topic in (part.strip() for part in text.split(",")) if topic))
        if not topics:
            raise UsageError("option subscribe names no topic; write orders,payments")
        return Subscription(topics=topics)
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"option subscribePattern={text!r} is no regular expression: {error}") from None
    if not text:
        raise UsageError("option subscribePattern is empty; write orders-.*")
    return Subscription(pattern=text)


# --- from where to where ----------------------------------------------------------------------------------------------


def _starting(given: Mapping[str, str], *, streaming: bool) -> Position:
    found = _position(given, "starting", "latest" if streaming else "earliest", ("earliest", "latest", "group"))
    if not streaming and (found.kind == "latest" or (found.kind == "offsets" and LATEST in found.offsets.values())):
        raise UsageError(
            f"option {found.option}: a batch read cannot begin at the end (latest, -1), it would be empty; write"
            " earliest, offsets or a time"
        )
    return found


def _ending(given: Mapping[str, str], *, streaming: bool) -> Position:
    found = _position(given, "ending", "latest", ("latest",))
    if streaming and found.option.lower() in given:
        raise UsageError(
            f"option {found.option} is for batch reads: a stream has no end. For all that is there now, use"
            " trigger(availableNow=True)"
        )
    if found.kind == "offsets" and EARLIEST in found.offsets.values():
        raise UsageError(f"option {found.option}: a batch read cannot end at the beginning (-2); write -1 or an offset")
    return found


def _position(given: Mapping[str, str], side: str, default: str, words: tuple[str, ...]) -> Position:
    """Returns the first of the three options for one end that is given."""
    option = f"{side}Timestamp"
    if option.lower() in given:
        return Position("time", option, time_ms=parse_count(given[option.lower()], option, least=0))
    option = f"{side}OffsetsByTimestamp"
    if option.lower() in given:
        return Position("times", option, parse_times(given[option.lower()], option))
    option = f"{side}Offsets"
    text = given.get(option.lower(), default).strip()
    if text.lower() in words:
        return Position(text.lower(), option)
    if not text.startswith("{"):
        example = '{"orders": {"0": 23}}'
        raise UsageError(f"option {option}={text!r} must be one of {', '.join(words)}, or offsets such as {example}")
    return Position("offsets", option, parse_offsets(text, option))


# --- the rest ---------------------------------------------------------------------------------------------------------


def _limits(given: Mapping[str, str], *, streaming: bool) -> Limits:
    limits = Limits(
        max_offsets=_count(given, "maxOffsetsPerTrigger", 0),
        max_bytes=_count(given, "maxBytesPerTrigger", 0),
        min_offsets=_count(given, "minOffsetsPerTrigger", 0),
        max_delay_ms=parse_duration_ms(given.get("maxtriggerdelay", "15m"), "option maxTriggerDelay"),
        min_partitions=_count(given, "minPartitions", 0),
        max_records=_count(given, "maxRecordsPerPartition", 0),
    )
    if limits.max_offsets and limits.min_offsets > limits.max_offsets:
        raise UsageError(
            f"option minOffsetsPerTrigger={limits.min_offsets} is above maxOffsetsPerTrigger={limits.max_offsets}: no"
            " micro-batch could have so many"
        )
    if not streaming:
        for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            if name.lower() in given:
                _log.warning("option %s has no effect on a batch read", name)
    return limits


def _on_data_loss(given: Mapping[str, str], client: Mapping[str, str]) -> OnLoss:
    what, topic = _what_on_data_loss(given), given.get("datalosstopic", "").strip()
    if bool(topic) != (what == DEAD_LETTERS):
        raise UsageError("options onDataLoss=dlq and dataLossTopic go together: lost ranges are told in that topic")
    known = ProducerSettings.definitions
    return OnLoss(what, topic, {name: value for name, value in client.items() if name in known} if topic else {})


def _what_on_data_loss(given: Mapping[str, str]) -> str:
    fails = parse_bool(given["failondataloss"], "failOnDataLoss") if "failondataloss" in given else None
    if "ondataloss" not in given:
        return "warn" if fails is False else "fail"
    what = parse_choice(given, "onDataLoss", _ON_DATA_LOSS)
    if fails is not None and fails != (what == "fail"):
        raise UsageError(
            f"options failOnDataLoss={str(fails).lower()} and onDataLoss={what} contradict each other; onDataLoss alone"
            " says enough"
        )
    return what


def _count(given: Mapping[str, str], option: str, default: int, *, least: int = 1) -> int:
    text = given.get(option.lower())
    return default if text is None else parse_count(text, option, least=least)
