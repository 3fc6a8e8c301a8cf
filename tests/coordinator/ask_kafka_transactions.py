"""Play `transaction_script.py` against a real broker and write its answers to `kafka_transaction_answers.txt`.

    cd tests; python -m coordinator.ask_kafka_transactions 127.0.0.1:9092

The broker must be empty and run with transaction.abort.timed.out.transaction.cleanup.interval.ms=200. What stands in
the file is from Apache Kafka 4.4.0.
"""

import sys
import time
from pathlib import Path
from uuid import UUID

from barnabas.protocol.apis import ApiKey
from coordinator import group_script, transaction_script
from coordinator.wire_connection import WireConnection

ANSWERS = Path(__file__).with_name("kafka_transaction_answers.txt")


class WireWorld:
    sleep = staticmethod(time.sleep)

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._admin = self.connect("admin")
        for topic in ("orders", "other"):
            wanted = group_script.struct(
                "create_topics", "CreatableTopic", name=topic, num_partitions=4, replication_factor=1
            )
            self._admin.send(ApiKey.CREATE_TOPICS, 5, {"topics": [wanted], "timeout_ms": 5000})
            self._admin.receive()
        for kind in (0, 1):
            while True:
                self._admin.send(*group_script.find(4, "x", kind))
                if self._admin.receive().coordinators[0].error_code == 0:
                    break
                time.sleep(0.2)
        self._wait_for_producer_ids()
        time.sleep(3)

    def _wait_for_producer_ids(self) -> None:
        """The broker has its block of them, and what comes is greater than the 0 of an answer without one."""
        producer_id = 0
        while producer_id <= 0:
            self._admin.send(*transaction_script.init(None))
            producer_id = self._admin.receive().producer_id
            time.sleep(0.2)

    def connect(self, client_id: str) -> WireConnection:
        return WireConnection(*self._address, client_id)

    def topic_id(self, topic: str) -> UUID:
        raise NotImplementedError

    def exhaust(self, transactional_id: str) -> int:
        """Kafka has no shorter way."""
        while True:
            self._admin.send(*transaction_script.init(transactional_id))
            answer = self._admin.receive()
            assert answer.error_code == 0, answer
            if answer.producer_epoch == transaction_script.EPOCH_LAST:
                return int(answer.producer_id)


def main() -> None:
    host, port = sys.argv[1].split(":")
    player = transaction_script.Player(WireWorld(host, int(port)))
    for story in transaction_script.STORIES:
        player.play(story)  # type: ignore[arg-type]
    ANSWERS.write_text("".join(f"{label}\t{text}\n" for label, text in player.notes))


if __name__ == "__main__":
    main()
