"""What `dir` shows of a client is its API, the same for both fronts; their state machines need more."""

import inspect
from typing import Any

import pytest

import barnabas
import barnabas.aio
import barnabas.client.errors

TRANSACTIONS = {
    *("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction", "prepare_transaction"),
    *("complete_transaction", "release_transaction", "send_offsets_to_transaction", "transaction"),
}
PRODUCER = {"send", "send_many", "send_table", "flush", "purge", "close", "metrics", "partitions_for"} | TRANSACTIONS


@pytest.mark.parametrize("front", [barnabas.Producer, barnabas.aio.Producer])
def test_a_producer_shows_its_api_and_nothing_else(front: Any) -> None:
    assert {name for name, _ in inspect.getmembers(front) if not name.startswith("_")} == PRODUCER


def test_every_error_is_in_one_place() -> None:
    for name in ("TopicNotFound", "NoOffsetForPartition", "LogTruncation", "RecordDeserializationFailed", "UsageError"):
        assert getattr(barnabas.errors, name).__module__ == "barnabas.errors"
    for name in barnabas.client.errors.__all__:
        assert getattr(barnabas.client.errors, name) is getattr(barnabas.errors, name)


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_both_fronts_take_the_same_arguments(name: str) -> None:
    assert inspect.signature(getattr(barnabas, name)) == inspect.signature(getattr(barnabas.aio, name))
