"""Play `group_script.py` against a real broker and write its answers to `kafka_group_answers.txt`.

    cd tests; python -m coordinator.ask_kafka_groups 127.0.0.1:9092

The broker must be empty and run with group.initial.rebalance.delay.ms=0, group.max.size=3 and
offset.metadata.max.bytes=100. What stands in the file is from Apache Kafka 4.4.0.
"""

import sys
import time
from pathlib import Path
from uuid import UUID

from barnabas.protocol.apis import ApiKey
from coordinator import group_script
from coordinator.wire_connection import WireConnection

ANSWERS = Path(__file__).with_name("kafka_group_answers.txt")


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
        while True:
            self._admin.send(*group_script.find(4))
            if self._admin.receive().coordinators[0].error_code == 0:
                break
            time.sleep(0.2)
        time.sleep(2)

    def connect(self, client_id: str) -> WireConnection:
        return WireConnection(*self._address, client_id)

    def topic_id(self, topic: str) -> UUID:
        wanted = group_script.struct("metadata", "MetadataRequestTopic", name=topic)
        self._admin.send(ApiKey.METADATA, 12, {"topics": [wanted]})
        found: UUID = self._admin.receive().topics[0].topic_id
        return found


def main() -> None:
    host, port = sys.argv[1].split(":")
    player = group_script.Player(WireWorld(host, int(port)))
    for story in group_script.STORIES:
        player.play(story)
    ANSWERS.write_text("".join(f"{label}\t{text}\n" for label, text in player.notes))


if __name__ == "__main__":
    main()
