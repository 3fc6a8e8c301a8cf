"""The JSON of Kafka's kafka-reassign-partitions: which brokers get which replicas."""

import json
from collections.abc import Mapping
from typing import Any, Final

from barnabas.cli.cluster.reassignment.plan import Assignment
from barnabas.cli.framework.resources import check_topic_name
from barnabas.errors import UsageError
from barnabas.types import TopicPartition

__all__ = ["parse_assignment", "reassignment_json"]

INT32_MAX: Final = 2**31 - 1


def reassignment_json(assignment: Assignment) -> dict[str, Any]:
    partitions = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(replicas),
        }
        for tp, replicas in sorted(assignment.items())
    ]
    return {"version": 1, "partitions": partitions}


def parse_assignment(text: str | bytes, name: str) -> dict[TopicPartition, list[int]]:
    """Returns the assignment in a file of that name. Raises UsageError."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is no JSON: {error}") from None
    if (
        not isinstance(content, Mapping)
        or content.get("version") != 1
        or not isinstance(content.get("partitions"), list)
    ):
        raise UsageError(f'{name}: a plan is {{"version": 1, "partitions": [...]}}, as `reassign plan` prints it')
    found: dict[TopicPartition, list[int]] = {}
    for entry in content["partitions"]:
        match entry:
            case {"topic": str(topic), "partition": number, "replicas": [_, *_] as replicas} if all(
                map(_is_id, (number, *replicas))
            ):
                directories = entry.get("log_dirs")
                _check_topic(topic, name)
                if directories is not None and not _are_any(directories, len(replicas)):
                    raise UsageError(
                        f"{name}: the log_dirs of {topic}-{number} are {json.dumps(directories)}, and brokers choose "
                        'their directories themselves; write a list with "any" for each replica, or no log_dirs'
                    )
                if TopicPartition(topic, number) in found:
                    raise UsageError(f"{name}: {topic}-{number} is there twice")
                found[TopicPartition(topic, number)] = replicas
            case _:
                raise UsageError(
                    f"{name}: {json.dumps(entry)} has no topic, partition and replicas; the partition and the brokers "
                    f"are whole numbers from 0 to {INT32_MAX}"
                )
    if not found:
        raise UsageError(f"{name} has no partitions")
    return found


def _is_id(value: object) -> bool:
    """Returns whether it can be the number of a partition or of a broker; JSON's true cannot."""
    return type(value) is int and 0 <= value <= INT32_MAX


def _check_topic(topic: str, name: str) -> None:
    try:
        check_topic_name(topic)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _are_any(directories: object, count: int) -> bool:
    """Returns whether it leaves the directories of so many replicas to the brokers; Kafka takes an empty list, too."""
    return isinstance(directories, list) and directories in ([], ["any"] * count)
