"""Plans in the format of kafka-reassign-partitions."""

import json
import re

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
        (b"\xff\xfe{", "plan is no JSON: 'utf-16"),
        (b'{"\xe9": 1}', "plan is no JSON: 'utf-8' codec"),
        ("[" * 100_000, "plan is no JSON"),
        ("[]", "a plan is"),
        ('{"version": 2, "partitions": []}', "a plan is"),
        ('{"version": 1, "partitions": []}', "plan has no partitions"),
        ('{"version": 1, "partitions": [7]}', "7 has no topic, partition and replicas"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "has no topic"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "has no topic"),
        (
            json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}),
            "t-0 is there twice",
        ),
    ],
)
def test_what_is_no_plan_is_told(text: str | bytes, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_assignment(text, "plan")


def plan(**fields: object) -> str:
    """Returns a plan for one partition with these fields in the place of valid ones."""
    return json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], **fields}]})


@pytest.mark.parametrize("directories", [["/d"], ["any", "/d"], [5], 5, True, False, "any", "", {"any": 1}])
def test_log_directories_that_are_no_list_of_any_are_refused(directories: object) -> None:
    told = f"plan: the log_dirs of t-0 are {json.dumps(directories)}, and brokers choose"
    with pytest.raises(UsageError, match=re.escape(told)):
        parse_assignment(plan(log_dirs=directories), "plan")


def test_log_directories_are_as_many_as_replicas() -> None:
    with pytest.raises(UsageError, match=r'the log_dirs of t-0 are .*; write a list with "any" for each replica'):
        parse_assignment(plan(replicas=[1, 2, 3], log_dirs=["any", "any"]), "plan")


@pytest.mark.parametrize(
    ("topic", "told"), [("", "empty"), ("a\ud800", "'a\ud800' contains"), ("a" * 40_000, "40,000")]
)
def test_what_no_topic_is_called_is_refused(topic: str, told: str) -> None:
    with pytest.raises(UsageError, match=f"^plan: .*{told}"):
        parse_assignment(plan(topic=topic), "plan")


@pytest.mark.parametrize("directories", [["any"], [], None])
def test_log_directories_may_be_left_open(directories: object) -> None:
    assert parse_assignment(plan(log_dirs=directories), "plan") == {("t", 0): [1]}


@pytest.mark.parametrize(
    "fields",
    [
        *({"topic": 5}, {"topic": None}, {"partition": True}, {"partition": -1}, {"partition": 2**31}),
        *({"partition": 0.0}, {"replicas": 1}, {"replicas": {"1": 1}}, {"replicas": [-1]}, {"replicas": [2**31]}),
    ],
)
def test_fields_that_no_request_can_have_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"has no topic, partition and replicas; .* from 0 to 2147483647"):
        parse_assignment(plan(**fields), "plan")
