"""The JSON of Kafka's kafka-reassign-partitions: which brokers get which replicas."""

import json
from collections.abc import Mapping
from typing import Any

from barnabas.cli.cluster.reassignment.plan import Assignment
from barnabas.errors import UsageError
from barnabas.types import TopicPartition

__all__ = ["parse_assignment", "reassignment_json"]


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


def parse_assignment(text: str, name: str) -> dict[TopicPartition, list[int]]:
    """Returns the assignment in a file of that name. Raises UsageError."""
    try:
        content = json.loads(text)
    except ValueError as error:
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
            case {"topic": str(topic), "partition": int(number), "replicas": [_, *_] as replicas} if all(
                type(replica) is int for replica in replicas
            ):
                if any(directory != "any" for directory in entry.get("log_dirs") or ()):
                    raise UsageError(f"{name}: replicas are put into log directories by the brokers; write any")
                if TopicPartition(topic, number) in found:
                    raise UsageError(f"{name}: {topic}-{number} is there twice")
                found[TopicPartition(topic, number)] = replicas
            case _:
                raise UsageError(f"{name}: {json.dumps(entry)} has no topic, partition and replicas")
    if not found:
        raise UsageError(f"{name} has no partitions")
    return found
