"""Producer and Consumer together, against a broker in this process."""

import pytest

import barnabas
from barnabas.errors import UsageError
from barnabas.testing import Broker


def test_what_was_sent_is_read_once_and_committed() -> None:
    with Broker() as broker:
        broker.create_topic("t", partitions=3)
        sent = {f"value {number}".encode() for number in range(1000)}
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            handles = [producer.send("t", value) for value in sent]
            producer.flush()
            assert all(handle.result(10).offset >= 0 for handle in handles)
        settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest"}
        read: list[bytes] = []
        with barnabas.Consumer("t", **settings) as consumer:
            for record in consumer:
                read.append(record.value)
                if len(read) == 1000:
                    break
        assert set(read) == sent
        assert sum(broker.committed("g").values()) == 1000


def test_transactions_are_refused_not_ignored() -> None:
    with pytest.raises(UsageError, match=r"transactional\.id"):
        barnabas.Producer(transactional_id="t")


def test_interceptors_are_refused_not_ignored() -> None:
    with pytest.raises(UsageError, match=r"interceptor\.classes"):
        barnabas.Producer(interceptor_classes=[print])
