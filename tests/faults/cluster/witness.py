"""A client that knows which broker has acknowledged what it sent."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable

from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.types import TopicPartition
from broker.sent_requests import batch
from broker.wire import Wire
from cluster.clients import Client
from cluster.history import Acknowledgement, History, Stream, encode

__all__ = ["Witness"]

VERSION = 9
SIZE_BYTES = 60
REQUEST_TIMEOUT_MS = 1_000
ANSWERED_TIMEOUT_S = 30.0
RECONNECT_S = 0.1
INTERVAL_S = 0.1


class Witness(Client):
    """Sends records with acks=all to one broker, whichever it is that leads, and whoever else it reaches.

    Each connection is a producer of its own: what has got no answer may still be written, before what is sent next.
    """

    def __init__(
        self, broker: int, address: tuple[str, int], partitions: Iterable[TopicPartition], history: History
    ) -> None:
        super().__init__(f"witness-{broker}", history)
        self._broker, self._address, self._partitions = broker, address, list(partitions)

    def work(self) -> None:
        number = 0
        while not self.stopping.wait(RECONNECT_S):
            number += 1
            try:
                with Wire(self._address, ANSWERED_TIMEOUT_S) as wire:
                    while not self.stopping.wait(INTERVAL_S):
                        self._ask(wire, f"{self.name}/{number}")
            except (OSError, EOFError) as error:
                self.note(error)

    def _ask(self, wire: Wire, producer: str) -> None:
        """Sends a record to each partition, and notes those that are acknowledged."""
        sent: dict[TopicPartition, int] = {}
        data: dict[str, list[PartitionProduceData]] = defaultdict(list)
        for topic_partition in self._partitions:
            stream = Stream(producer, topic_partition)
            sent[topic_partition] = sequence = self.history.sent[stream]
            self.history.sent[stream] = sequence + 1
            value = encode(producer, sequence, SIZE_BYTES)
            records = batch(value, key=producer.encode(), timestamp=int(time.time() * 1000))
            data[topic_partition.topic].append(PartitionProduceData(index=topic_partition.partition, records=records))
        topics = [TopicProduceData(name=name, partition_data=partitions) for name, partitions in data.items()]
        sent_s = time.monotonic()
        told = wire.ask(ProduceRequest(acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=topics), VERSION)
        at_s = time.monotonic()
        for topic in told.responses:
            for each in topic.partition_responses:
                if not each.error_code:
                    topic_partition = TopicPartition(topic.name, each.index)
                    acknowledgement = Acknowledgement(each.base_offset, sent_s, at_s, self._broker)
                    acknowledged = self.history.acknowledged[Stream(producer, topic_partition)]
                    acknowledged[sent[topic_partition]] = acknowledgement
