"""Asks a pipeline's brokers whether they answer, and for the state of a checkpoint's topics."""

from collections.abc import Mapping
from typing import Final

from barnabas import Admin
from barnabas.client.errors import ClientError, ItemsFailed
from barnabas.client.settings import AdminSettings
from barnabas.errors import UnknownTopicOrPartition
from barnabas.pipeline.checkpoint import Checkpoint
from barnabas.pipeline.diagnosis import BrokerView
from barnabas.pipeline.errors import PipelineFailed
from barnabas.spark.sink.decision import NO_BATCH, decode_decision
from barnabas.spark.sink.two_phase import group_of
from barnabas.types import TopicPartition

__all__ = ["broker_view", "check_broker", "end_offsets", "open_admin"]

_CHECK_MS: Final = "30000"


def open_admin(options: Mapping[str, str]) -> Admin:
    """Returns an administrator for the options of format("barnabas"). It connects at its first use; a wrong address is
    reported at once."""
    known = AdminSettings.definitions.names()
    given = {name.removeprefix("kafka."): value for name, value in options.items()}
    settings = {name: value for name, value in given.items() if name in known}
    return Admin({"client.id": "barnabas-pipeline", "bootstrap.timeout.ms": 0, **settings})


def check_broker(options: Mapping[str, str]) -> None:
    """Raises PipelineFailed unless a broker answers before long: a query would find that out a minute after Spark has
    started."""
    limits = {"bootstrap.timeout.ms": _CHECK_MS, "default.api.timeout.ms": _CHECK_MS}
    try:
        with open_admin({**limits, **options}) as admin:
            admin.describe_cluster()
    except ClientError as error:
        raise PipelineFailed(f"{error}; the address is bootstrap.servers of [kafka] in pipeline.toml") from error


def broker_view(admin: Admin, checkpoint: Checkpoint) -> BrokerView:
    """Returns what the brokers have of a checkpoint's topics and of its query's transactions."""
    done = checkpoint.done
    topics = {partition.topic for partition in done.offsets} if done else set()
    try:
        there = admin.describe_topics(sorted(topics)) if topics else {}
    except ItemsFailed as error:
        if not error.only(UnknownTopicOrPartition):
            raise
        there = dict(error.succeeded)
    partitions = [TopicPartition(name, number) for name, each in there.items() for number in each.partitions]
    starts = admin.list_offsets(dict.fromkeys(partitions, "earliest")) if partitions else {}
    ends = admin.list_offsets(dict.fromkeys(partitions, "latest")) if partitions else {}
    return BrokerView(
        {name: str(each.topic_id) for name, each in there.items()},
        {partition: each.offset for partition, each in starts.items()},
        {partition: each.offset for partition, each in ends.items()},
        _committed_batch(admin, checkpoint.query_id),
    )


def _committed_batch(admin: Admin, query_id: str | None) -> int | None:
    if query_id is None:
        return None
    decision = decode_decision(admin.list_group_offsets(group_of(query_id)), f"{query_id}/")
    return None if decision is None or decision.batch == NO_BATCH else decision.batch


def end_offsets(admin: Admin, checkpoint: Checkpoint) -> dict[TopicPartition, int]:
    """Returns the end offsets of the topics of a checkpoint, partitions that are new included."""
    return dict(broker_view(admin, checkpoint).ends)
