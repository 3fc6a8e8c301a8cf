"""DescribeTransactions: the state of each transactional id, with its partitions."""

from barnabas.broker.server import Broker
from barnabas.errors import TransactionalIdNotFound
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from broker.admin_rig import ask
from broker.handlers.transactions.transactions_rig import add, producer
from broker.handlers.transactions.transactions_rig import broker as broker


def test_each_id_is_described_or_unknown(broker: Broker) -> None:
    sender = producer(broker)
    empty = producer(broker, "y")
    add(broker, sender, ("t", 2), ("t", 0))
    request = DescribeTransactionsRequest(transactional_ids=["x", "y", "nobody"])
    open_one, idle, unknown = ask(broker, request).transaction_states
    assert (open_one.transactional_id, open_one.error_code, open_one.transaction_state) == ("x", 0, "Ongoing")
    assert (open_one.producer_id, open_one.producer_epoch, open_one.transaction_timeout_ms) == (*sender, 1000)
    assert [(topic.topic, list(topic.partitions)) for topic in open_one.topics] == [("t", [0, 2])]
    assert open_one.transaction_start_time_ms > 0
    assert (idle.transaction_state, idle.producer_id, list(idle.topics)) == ("Empty", empty[0], [])
    assert idle.transaction_start_time_ms == -1
    assert (unknown.transactional_id, unknown.error_code) == ("nobody", TransactionalIdNotFound.code)
