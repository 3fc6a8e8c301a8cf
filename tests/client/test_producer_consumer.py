"""Producer and Consumer together, against a broker in this process."""

import pytest

import barnabas
from barnabas.errors import BarnabasError
from barnabas.testing import Broker


def test_what_was_sent_is_read_once_and_committed() -> None:
    with Broker() as broker:
        broker.create_topic("t", partitions=3)
        sent = {f"value {number}".encode() for number in range(1000)}
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            handles = [producer.send("t", value) for value in sent]
            producer.flush()
            assert all(handle.result(60).offset >= 0 for handle in handles)
        settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest"}
        read: list[bytes] = []
        with barnabas.Consumer("t", **settings) as consumer:
            for record in consumer:
                read.append(record.value)
                if len(read) == 1000:
                    break
        assert set(read) == sent
        assert sum(broker.committed("g").values()) == 1000


def test_a_deserializer_that_fails_is_told_after_the_records_before_it() -> None:
    def only_even(data: bytes) -> int:
        if int(data) % 2:
            raise ValueError("odd")
        return int(data)

    with Broker() as broker:
        broker.create_topic("t")
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in (0, 2, 3, 4):
                producer.send("t", str(number).encode())
        with barnabas.Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", value_deserializer=only_even
        ) as consumer:
            consumer.assign([("t", 0)])
            assert [record.value for record in consumer.poll(60)] == [0, 2]
            with pytest.raises(BarnabasError, match="odd"):
                consumer.poll(60)
            assert consumer.position(("t", 0)) == 2


def test_a_partition_that_is_paused_while_it_is_iterated_gives_no_more() -> None:
    with Broker() as broker:
        broker.create_topic("t", partitions=2)
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("t", str(number).encode(), partition=0)
            producer.send("t", b"other", partition=1)
        with barnabas.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            for record in consumer:
                if record.offset == 9:
                    consumer.pause([("t", 0)])
                    break
            assert consumer.position(("t", 0)) == 10
            assert consumer.poll(0.2) == []
            consumer.resume([("t", 0)])
            assert next(iter(consumer)).offset == 10
            seen = []
            for record in consumer:
                seen.append(record.offset)
                if record.offset == 20:
                    consumer.pause([("t", 0)])
                    consumer.assign([("t", 0), ("t", 1)])
                    consumer.pause([("t", 0)])
                if record.partition == 1:
                    break
            assert seen == [*range(11, 21), 0]
