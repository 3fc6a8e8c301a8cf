"""The test of a service, with the fixture that Barnabas brings: `pytest examples/test_service.py`."""

from collections.abc import Iterator

import pytest

import barnabas
from barnabas.testing import Broker


class Shop:
    """The service. It knows nothing of the test kit, only an address."""

    def __init__(self, servers: str) -> None:
        self.producer = barnabas.Producer(bootstrap_servers=servers)

    def order(self, customer: str, what: str) -> int:
        """Returns the number of the order."""
        sent = self.producer.send("orders", what.encode(), key=customer.encode())
        return sent.result(timeout=30).offset


@pytest.fixture
def shop(kafka: Broker) -> Iterator[Shop]:
    kafka.create_topic("orders")
    shop = Shop(kafka.bootstrap_servers)
    yield shop
    shop.producer.close()


def test_orders_of_a_customer_keep_their_order(kafka: Broker, shop: Shop) -> None:
    assert [shop.order("ann", what) for what in ("tea", "cup")] == [0, 1]
    assert [(record.key, record.value) for record in kafka.records("orders")] == [(b"ann", b"tea"), (b"ann", b"cup")]


def test_an_answer_that_is_lost_makes_no_second_order(kafka: Broker, shop: Shop) -> None:
    lost = kafka.faults.disconnect("PRODUCE", after=True)  # written, but the answer is lost
    shop.order("ann", "tea")
    assert lost.hits == 1
    assert len(kafka.records("orders")) == 1
