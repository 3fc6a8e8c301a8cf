"""A read's options: what they mean, and what is said of those that are wrong. No Spark."""

import pytest

from barnabas.errors import UsageError
from barnabas.spark.source.data_loss import OnLoss
from barnabas.spark.source.options import SourceOptions
from barnabas.types import TopicPartition

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def parse(*, streaming: bool = True, **more: str) -> SourceOptions:
    return SourceOptions.parse(
        {**LEAST, **{name.replace("__", "."): text for name, text in more.items()}}, streaming=streaming
    )


def test_the_least() -> None:
    options = parse()
    assert options.client == {"bootstrap.servers": "localhost:9092"}
    assert options.subscription.topics == ("orders",)
    assert (options.starting.kind, options.ending.kind) == ("latest", "latest")
    assert parse(streaming=False).starting.kind == "earliest"
    assert options.on_data_loss == OnLoss("fail")
    assert not options.include_headers


def test_names_are_taken_in_any_case() -> None:
    options = {
        name.lower(): text for name, text in {**LEAST, "maxOffsetsPerTrigger": "5", "minPartitions": "3"}.items()
    }
    assert SourceOptions.parse(options, streaming=True).limits[:1] == (5,)
    shouted = {name.upper() if not name.startswith("kafka.") else name: text for name, text in options.items()}
    assert SourceOptions.parse(shouted, streaming=True).limits.min_partitions == 3


def test_servers_may_be_named_either_way() -> None:
    bare = {"bootstrap.servers": "a:1", "subscribe": "t"}
    assert SourceOptions.parse(bare, streaming=True).client["bootstrap.servers"] == "a:1"
    with pytest.raises(
        UsageError, match=r"bootstrap.servers=b:2 and kafka.bootstrap.servers=localhost:9092 contradict"
    ):
        parse(bootstrap__servers="b:2")
    with pytest.raises(UsageError, match=r"bootstrap\.servers is missing"):
        SourceOptions.parse({"subscribe": "t"}, streaming=True)


def test_client_settings_pass_through_and_a_producers_are_left_to_the_sink() -> None:
    options = parse(kafka__client__id="me", kafka__acks="all", kafka__isolation__level="read_committed")
    assert options.client == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "me",
        "isolation.level": "read_committed",
    }
    assert parse(isolationLevel="read_committed").client["isolation.level"] == "read_committed"


def test_times_go_before_offsets() -> None:
    offsets, times = '{"orders": {"0": 5, "1": -2}}', '{"orders": {"0": 77, "1": 78}}'
    found = parse(startingOffsets=offsets).starting
    assert (found.kind, found.offsets) == ("offsets", {T0: 5, T1: -2})
    found = parse(startingOffsets=offsets, startingOffsetsByTimestamp=times).starting
    assert (found.kind, found.offsets) == ("times", {T0: 77, T1: 78})
    found = parse(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="99").starting
    assert (found.kind, found.time_ms) == ("time", 99)


def test_data_loss() -> None:
    assert parse(failOnDataLoss="false").on_data_loss.what == "warn"
    assert parse(failOnDataLoss="false", onDataLoss="skip").on_data_loss.what == "skip"
    assert parse(failOnDataLoss="true", onDataLoss="fail").on_data_loss.what == "fail"
    with pytest.raises(UsageError, match="failOnDataLoss=true and onDataLoss=warn contradict"):
        parse(failOnDataLoss="true", onDataLoss="warn")


def test_a_group_to_begin_from() -> None:
    options = parse(startingOffsets="group", groupIdForLag="g")
    assert (options.starting.kind, options.group_id, options.group_id_for_lag) == ("group", "g", "g")
    options = parse(startingOffsets="group", kafka__group__id="other")
    assert (options.group_id, options.group_id_for_lag) == ("other", None)
    assert "group.id" not in options.client
    with pytest.raises(UsageError, match="startingOffsets=group needs to know the group: give groupIdForLag"):
        parse(startingOffsets="group")


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("startingOfsets", "latest", "option startingOfsets does not exist: did you mean startingOffsets"),
        ("path", "orders", "name topics by option subscribe"),
        ("kafka__auto__offset__reset", "earliest", "kafka.auto.offset.reset cannot be used: .* startingOffsets"),
        ("kafka__key__deserializer", "x", "kafka.key.deserializer cannot be used"),
        ("kafka__isolation__levle", "x", "did you mean isolation.level"),
        ("kafka__isolation__level", "dirty", "isolation.level"),
        ("assign", '{"orders": [0]}', "exactly one of .*subscribe and assign are given"),
        (
            "startingOffsets",
            "begin",
            "startingOffsets='begin' must be one of earliest, latest, group, or offsets such as",
        ),
        ("startingOffsets", '{"orders": {"0": 5', "startingOffsets is not readable JSON .* write it as"),
        ("startingOffsets", '{"orders": {"0": 5, "0": 6}}', "'0' is there twice"),
        ("startingOffsets", '{"orders": [5]}', "startingOffsets: 'orders' needs an object of partitions"),
        ("startingOffsets", '{"orders": {"x": 5}}', "'x' is no partition of 'orders'"),
        ("startingOffsets", '{"orders": {"0": -3}}', "-3 for orders-0 is not a number from -2"),
        ("startingOffsets", '{"orders": {"0": 1.5}}', "1.5 for orders-0"),
        ("startingOffsets", '{"orders": {"0": true}}', "True for orders-0"),
        ("startingOffsets", '{"orders": {"0": 9223372036854775808}}', "is not a number from"),
        ("startingOffsets", '{"a":' * 10_000, "not readable JSON"),
        ("startingOffsetsByTimestamp", '{"orders": {"0": -1}}', "-1 for orders-0 is not a number from 0"),
        ("startingTimestamp", "yesterday", "startingTimestamp='yesterday' must be a whole number"),
        ("startingOffsetsByTimestampStrategy", "guess", "must be one of error, latest"),
        ("endingOffsets", "latest", "endingOffsets is for batch reads: .*availableNow"),
        ("endingTimestamp", "5", "endingTimestamp is for batch reads"),
        ("maxOffsetsPerTrigger", "0", "maxOffsetsPerTrigger='0' must be a whole number from 1 on"),
        ("maxOffsetsPerTrigger", "-5", "must be a whole number"),
        ("maxOffsetsPerTrigger", "9" * 5000, "must be a whole number"),
        ("maxTriggerDelay", "soon", "option maxTriggerDelay='soon' must be a time: 500 ms"),
        ("includeHeaders", "yes", "includeHeaders='yes' must be true or false"),
        ("onDataLoss", "ignore", "onDataLoss='ignore' must be one of fail, warn, skip, dlq"),
    ],
)
def test_what_is_wrong_is_named(option: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(**{option: text})


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("startingOffsets", "latest", "startingOffsets: a batch read cannot begin at the end"),
        ("startingOffsets", '{"orders": {"0": -1}}', "startingOffsets: a batch read cannot begin at the end"),
        ("endingOffsets", "earliest", "endingOffsets='earliest' must be one of latest"),
        ("endingOffsets", '{"orders": {"0": -2}}', "endingOffsets: a batch read cannot end at the beginning"),
    ],
)
def test_what_a_batch_cannot_do(option: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(streaming=False, **{option: text})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "none is given"),
        ({"subscribe": " , "}, "option subscribe names no topic"),
        ({"subscribePattern": "("}, "subscribePattern='\\(' is no regular expression"),
        ({"subscribePattern": " "}, "subscribePattern is empty"),
        ({"assign": "orders"}, "option assign is not readable JSON"),
        ({"assign": "{}"}, "option assign names no partition"),
        ({"assign": '{"orders": 1}'}, "assign: 'orders' needs a list of partitions"),
        ({"assign": '{"orders": [-1]}'}, "assign: -1 is no partition of 'orders'"),
    ],
)
def test_subscriptions_that_mean_nothing(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        SourceOptions.parse({"bootstrap.servers": "a:1", **options}, streaming=True)


def test_more_at_least_than_at_most() -> None:
    with pytest.raises(UsageError, match="minOffsetsPerTrigger=6 is above maxOffsetsPerTrigger=5"):
        parse(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
