"""A transactional producer on the simulated cluster."""

from typing import Any

from barnabas.client.producer.transactions.transaction_manager import TransactionManager
from barnabas.types import TopicPartition
from simulation.producer import SimulatedProducer

INIT, ADD_PARTITIONS, ADD_OFFSETS, END, OFFSETS = 22, 24, 25, 26, 28
WHERE = TopicPartition("in", 0)


class Transacting(SimulatedProducer):
    def __init__(self, version: int = 2, *, verifies: bool = True, **settings: Any) -> None:
        settings = {"transactional_id": "tx", "linger_ms": 0, **settings}
        super().__init__(transaction_version=version, verifies_transactions=verifies, **settings)
        assert self.kafka_producer.transactions is not None
        self.transactions: TransactionManager = self.kafka_producer.transactions

    def wait(self, promise: Any) -> Any:
        try:
            return self.cluster.result(promise)
        finally:
            self.transactions.heard(promise)

    def init(self, **options: Any) -> None:
        self.wait(self.transactions.init(**options))

    def commit(self) -> None:
        self.wait(self.transactions.commit())

    def abort(self) -> None:
        self.wait(self.transactions.abort())

    def seen(self, partition: int = 0) -> list[bytes | None]:
        return self.cluster.log("t", partition).committed_values()

    @property
    def identity(self) -> tuple[int, int]:
        assert self.kafka_producer.producer_ids is not None
        return self.kafka_producer.producer_ids.current

    @property
    def at_coordinator(self) -> Any:
        return self.cluster.transactions.transactions["tx"]
