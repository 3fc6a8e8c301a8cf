"""Plans in the format of kafka-reassign-partitions."""

import json

import pytest

from barnabas.cli.cluster.reassignment.file import parse_assignment, reassignment_json
from barnabas.errors import UsageError
from barnabas.types import TopicPartition


def test_what_was_written_is_read() -> None:
    assignment = {TopicPartition("b", 1): [1, 2], TopicPartition("a", 0): [3]}
    content = reassignment_json(assignment)
    assert content["partitions"][0] == {"topic": "a", "partition": 0, "replicas": [3], "log_dirs": ["any"]}
    assert parse_assignment(json.dumps(content), "plan") == assignment


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "plan is no JSON"),
        ("[]", "a plan is"),
        ('{"version": 2, "partitions": []}', "a plan is"),
        ('{"version": 1, "partitions": []}', "plan has no partitions"),
        ('{"version": 1, "partitions": [7]}', "7 has no topic, partition and replicas"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "has no topic"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "has no topic"),
        (
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}',
            "write any",
        ),
        (
            json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}),
            "t-0 is there twice",
        ),
    ],
)
def test_what_is_no_plan_is_told(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_assignment(text, "plan")
