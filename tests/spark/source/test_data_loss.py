"""Lost ranges as records of a topic: `onDataLoss=dlq`."""

import json
import time
from typing import Any

import pytest

import barnabas
from barnabas.errors import UsageError
from barnabas.spark.source.data_loss import OnLoss, lost, lost_from
from barnabas.spark.source.options import SourceOptions
from barnabas.spark.source.planning import OffsetRange
from barnabas.testing import Broker
from barnabas.types import TopicPartition

from .test_micro_batches import T0, T1, FakeCluster, Query


def options_of(**more: str) -> SourceOptions:
    return SourceOptions.parse(
        {"bootstrap.servers": "here:9092", "subscribe": "t", **{n.replace("__", "."): v for n, v in more.items()}},
        streaming=True,
    )


def test_each_lost_range_is_a_record_before_the_query_goes_on() -> None:
    with Broker() as broker:
        broker.create_topic("lost", 2)
        asked = options_of(onDataLoss="dlq", dataLossTopic="lost", kafka__fetch__min__bytes="5")
        rule = asked.on_data_loss._replace(
            client={**asked.on_data_loss.client, "bootstrap.servers": broker.bootstrap_servers}
        )
        lost(rule, [OffsetRange(T0, 3, 8), OffsetRange(T1, 0, 1)], "the log begins at 8 now")
        lost_from(rule, {TopicPartition("u", 4): 17}, "u-4 is no longer there")
        with barnabas.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([("lost", 0), ("lost", 1)])
            found: list[Any] = []
            deadline = time.monotonic() + 60
            while len(found) < 3:
                assert time.monotonic() < deadline, f"of three letters only {found} have come"
                found += consumer.poll(5)
    assert sorted((record.key, *json.loads(record.value).values()) for record in found) == [
        (b"t-0", "t", 0, 3, 7, "the log begins at 8 now"),
        (b"t-1", "t", 1, 0, 0, "the log begins at 8 now"),
        (b"u-4", "u", 4, 17, None, "u-4 is no longer there"),
    ]


def test_what_a_stream_loses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "barnabas.spark.source.data_loss._write",
        lambda rule, letters: told.extend(json.loads(value) for _, value in letters),
    )
    cluster = FakeCluster({T0: 5, T1: 5})
    query = Query(cluster, onDataLoss="dlq", dataLossTopic="lost")
    query.batch()
    cluster.at = {T0: 3}
    assert query.batch() == []
    cluster.ids, cluster.at = {"t": "id-2"}, {T0: 0}
    query.batch()
    places = [(each["topic"], each["partition"], each["from"], each["to"]) for each in told]
    assert places == [("t", 1, 5, None), ("t", 0, 3, 4), ("t", 0, 3, None)]


def test_a_loss_is_told_once_where_a_batch_waits_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bytes] = []
    monkeypatch.setattr(
        "barnabas.spark.source.data_loss._write", lambda rule, letters: told.extend(key for key, _ in letters)
    )
    cluster = FakeCluster({T0: 5, T1: 5})
    query = Query(cluster, onDataLoss="dlq", dataLossTopic="lost", minOffsetsPerTrigger="100", maxTriggerDelay="15m")
    query.batch()
    cluster.at = {T0: 3, T1: 8}
    assert [query.batch() for _ in range(3)] == [[(1, 5, 8)], [], []]
    assert told == [b"t-0"]


def test_options_go_together() -> None:
    for more in ({"onDataLoss": "dlq"}, {"dataLossTopic": "lost"}, {"onDataLoss": "warn", "dataLossTopic": "lost"}):
        with pytest.raises(UsageError, match="onDataLoss=dlq and dataLossTopic go together"):
            options_of(**more)
    assert options_of().on_data_loss == OnLoss("fail")
