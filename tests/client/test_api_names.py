"""What `dir` shows of a client is its API, the same for both fronts; what the core asks of them is elsewhere."""

import inspect
from typing import Any

import pytest

import barnabas
import barnabas.aio

TRANSACTIONS = {
    *("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction", "prepare_transaction"),
    *("complete_transaction", "release_transaction", "send_offsets_to_transaction", "transaction"),
}
PRODUCER = {"send", "send_many", "send_table", "flush", "purge", "close", "metrics", "partitions_for"} | TRANSACTIONS


@pytest.mark.parametrize("front", [barnabas.Producer, barnabas.aio.Producer])
def test_a_producer_shows_its_api_and_nothing_else(front: Any) -> None:
    assert {name for name, _ in inspect.getmembers(front) if not name.startswith("_")} == PRODUCER
