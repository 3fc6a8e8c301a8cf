"""The demo's topics: events, two tables, and what the pipeline makes of them."""

import csv
import json
from typing import Final

from barnabas import Admin, Producer
from barnabas.client.admin.topics import NewTopic
from barnabas.client.errors import ItemsFailed
from barnabas.errors import TopicAlreadyExists, UnknownTopicOrPartition
from barnabas.pipeline.demo.flights import data_file
from barnabas.types import TopicPartition

__all__ = [
    "AIRLINES",
    "AIRPORTS",
    "DELAYS",
    "EVENTS",
    "TOPICS",
    "end_offsets",
    "make_topics",
    "remove_topics",
    "write_tables",
]

EVENTS: Final = "flights-events"
AIRLINES: Final = "flights-airlines"
AIRPORTS: Final = "flights-airports"
DELAYS: Final = "flights-delays"

_TABLE: Final = {"cleanup.policy": "compact"}
_FOREVER: Final = {"retention.ms": "-1", "segment.ms": str(2**63 - 1)}
"""The flights are of 2013: by its default settings, a broker would roll at every week of them and then delete them."""
TOPICS: Final = (
    NewTopic(EVENTS, 4, -1, _FOREVER),
    NewTopic(AIRLINES, 1, -1, _TABLE),
    NewTopic(AIRPORTS, 1, -1, _TABLE),
    NewTopic(DELAYS, 2, -1, _TABLE),
)

_TABLES: Final = {AIRLINES: ("airlines.csv", "carrier"), AIRPORTS: ("airports.csv", "faa")}


def make_topics(admin: Admin) -> bool:
    """Creates the topics that do not exist yet. Returns True if none existed."""
    try:
        admin.create_topics(TOPICS)
    except ItemsFailed as error:
        if not error.only(TopicAlreadyExists):
            raise
        return False
    return True


def remove_topics(admin: Admin) -> None:
    try:
        admin.delete_topics([topic.name for topic in TOPICS])
    except ItemsFailed as error:
        if not error.only(UnknownTopicOrPartition):
            raise


def end_offsets(admin: Admin, topic: str) -> dict[TopicPartition, int]:
    """Returns the offset behind the last committed record of each partition."""
    partitions = admin.describe_topics(topic)[topic].partitions
    found = admin.list_offsets({(topic, number): "latest" for number in partitions}, isolation="read_committed")
    return {partition: each.offset for partition, each in found.items()}


def write_tables(admin: Admin, settings: dict[str, object]) -> None:
    """Writes airlines and airports, keyed by their codes, unless an earlier run has done so."""
    with Producer(settings) as producer:
        for topic, (file, key) in _TABLES.items():
            if any(end_offsets(admin, topic).values()):
                continue
            with data_file(file).open(encoding="utf-8", newline="") as rows:
                for row in csv.DictReader(rows):
                    value = json.dumps(row, ensure_ascii=False)
                    producer.send(topic, value.encode(), key=row[key].encode())
