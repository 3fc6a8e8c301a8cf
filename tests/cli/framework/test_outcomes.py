"""Calls about several things, of which some fail."""

from barnabas.cli.framework.outcomes import failures_text
from barnabas.errors import LeaderNotAvailable
from barnabas.types import TopicPartition


def test_each_item_is_named_once_and_each_sentence_ends_once() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    failed = {first: LeaderNotAvailable("t-0: nobody leads"), second: LeaderNotAvailable("Failed to elect.")}
    assert failures_text(failed) == "t-0: nobody leads; t-1: Failed to elect"
