from collections.abc import Iterator

import pytest

import barnabas
from barnabas.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """With topic orders, of two partitions with fifteen records each."""
    with Broker() as broker:
        broker.create_topic("orders", 2)
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(30):
                producer.send("orders", b"x", partition=number % 2)
        yield broker
