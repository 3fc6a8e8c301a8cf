"""Counts words exactly once: the counts and the offsets of the lines are committed in one transaction.

The counts are a compacted topic. A run that starts reads them from there and goes on where the last committed
transaction ended, also after it was killed.
"""

import os
from collections import Counter

import barnabas

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP", "127.0.0.1:9092")
LINES = ["the quick brown fox", "jumps over the lazy dog", "the end"]


def create_topics() -> None:
    with barnabas.Admin(bootstrap_servers=SERVERS) as admin:
        there = {topic.name for topic in admin.list_topics()}
        wanted = [
            barnabas.NewTopic("example-lines", partitions=2),
            barnabas.NewTopic("example-counts", partitions=1, configs={"cleanup.policy": "compact"}),
        ]
        admin.create_topics(topic for topic in wanted if topic.name not in there)


def read_counts() -> Counter[bytes]:
    """Returns the counts of committed transactions."""
    counts: Counter[bytes] = Counter()
    where = ("example-counts", 0)
    with barnabas.Consumer(bootstrap_servers=SERVERS, isolation_level="read_committed") as consumer:
        end = consumer.end_offsets([where])[where]
        consumer.assign([where])
        consumer.seek_to_beginning()
        while consumer.position(where) < end:
            for record in consumer.poll(timeout=1):
                counts[record.key] = int(record.value)
    return counts


def main() -> None:
    create_topics()
    with barnabas.Producer(bootstrap_servers=SERVERS) as producer:
        for line in LINES:
            producer.send("example-lines", line.encode())

    with (
        barnabas.Consumer(
            "example-lines",
            bootstrap_servers=SERVERS,
            group_id="example-word-count",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        barnabas.Producer(bootstrap_servers=SERVERS, transactional_id="example-word-count") as producer,
    ):
        producer.init_transactions()  # before the counts are read: nobody else writes them from here on
        counts = read_counts()
        lines = 0
        while lines < len(LINES):  # a service would go on
            records = consumer.poll(timeout=1)
            if not records:
                continue
            with producer.transaction():
                changed = Counter(word for record in records for word in record.value.split())
                counts += changed
                for word in changed:
                    producer.send("example-counts", b"%d" % counts[word], key=word)
                producer.send_offsets_to_transaction(consumer.next_offsets(), consumer.group_metadata())
            lines += len(records)
    print(f"{read_counts()[b'the']} times 'the'")


if __name__ == "__main__":
    main()
