"""ListTransactions: by state, by producer, by age, by pattern."""

from typing import Any

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import InvalidRegularExpression
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from broker.admin_rig import ask, versions
from broker.handlers.transactions.transactions_rig import add, producer
from broker.handlers.transactions.transactions_rig import broker as broker


def listed(broker: Broker, version: int = 2, **filters: Any) -> list[str]:
    answer = ask(broker, ListTransactionsRequest(**filters), version)
    assert (answer.error_code, list(answer.unknown_state_filters)) == (0, [])
    return sorted(each.transactional_id for each in answer.transaction_states)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
def test_filters_are_added_up(broker: Broker, version: int) -> None:
    senders = {name: producer(broker, name) for name in ("x", "y", "other")}
    add(broker, senders["x"], ("t", 0))
    assert listed(broker, version) == ["other", "x", "y"]
    assert listed(broker, version, state_filters=["Ongoing"]) == ["x"]
    assert listed(broker, version, state_filters=["Empty", "Ongoing"], producer_id_filters=[senders["x"][0]]) == ["x"]
    assert listed(broker, version, producer_id_filters=[senders["y"][0], 999]) == ["y"]
    if version >= 1:
        assert listed(broker, version, duration_filter=3_600_000) == ["other", "y"], "without transaction: long ago"
    if version >= 2:
        assert listed(broker, version, transactional_id_pattern="[xy]") == ["x", "y"]
        assert listed(broker, version, transactional_id_pattern="o") == [], "the whole id has to match"


def test_states_and_patterns_that_do_not_exist(broker: Broker) -> None:
    producer(broker)
    answer = ask(broker, ListTransactionsRequest(state_filters=["Nonsense", "Empty", "Nonsense"]), 2)
    assert list(answer.unknown_state_filters) == ["Nonsense"]
    assert [(each.transactional_id, each.transaction_state) for each in answer.transaction_states] == [("x", "Empty")]
    answer = ask(broker, ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert answer.error_code == InvalidRegularExpression.code
