"""A consumer's settings: assignors, durations, what depends on a group."""

import pytest

from barnabas.client.settings import ConsumerSettings
from barnabas.client.settings.consumer import duration_ms


def test_a_consumer_leaves_its_receive_buffer_to_the_system() -> None:
    assert ConsumerSettings().receive_buffer_bytes == -1


def test_consumer_without_a_group_commits_nothing() -> None:
    assert not ConsumerSettings().enable_auto_commit
    assert ConsumerSettings(group_id="g").enable_auto_commit


def test_assignors_by_name_java_class_and_object() -> None:
    mine = object()
    given = ["org.apache.kafka.clients.consumer.StickyAssignor", "range", mine]
    settings = ConsumerSettings(partition_assignment_strategy=given)
    assert settings.partition_assignment_strategy == ("sticky", "range", mine)
    assert ConsumerSettings(partition_assignment_strategy=mine).partition_assignment_strategy == (mine,)
    text = ConsumerSettings(partition_assignment_strategy="roundrobin, range")
    assert text.partition_assignment_strategy == ("roundrobin", "range")
    assert ConsumerSettings().partition_assignment_strategy == ("range", "cooperative-sticky")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0.001s", 1),
        ("P2D", 172_800_000),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("-PT1H", None),
        ("PT-1H", None),
        ("1h", None),
        ("P1Y", None),
    ],
)
def test_durations(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms
