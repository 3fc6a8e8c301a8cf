"""A topic as a table: the last value of each key counts, and a value of None deletes the key.

The topic is compacted, so the broker keeps the last record of each key for ever. A program that starts reads the topic
once from its beginning, and has the table in a dict.
"""

import os

import barnabas

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP", "127.0.0.1:9092")
TOPIC = "example-prices"


def create_table() -> None:
    with barnabas.Admin(bootstrap_servers=SERVERS) as admin:
        if TOPIC not in [topic.name for topic in admin.list_topics()]:
            admin.create_topics(barnabas.NewTopic(TOPIC, partitions=2, configs={"cleanup.policy": "compact"}))


def read_table() -> dict[str, float]:
    table = {}
    with barnabas.Consumer(bootstrap_servers=SERVERS) as consumer:
        partitions = [(TOPIC, partition.partition) for partition in consumer.partitions_for(TOPIC)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for record in consumer.poll(timeout=1):
                key = record.key.decode()
                if record.value is None:
                    table.pop(key, None)
                else:
                    table[key] = float(record.value)
    return table


def main() -> None:
    create_table()
    with barnabas.Producer(bootstrap_servers=SERVERS) as producer:
        producer.send(TOPIC, b"1.20", key=b"apple")
        producer.send(TOPIC, b"2.50", key=b"pear")
        producer.send(TOPIC, b"1.40", key=b"apple")
        producer.send(TOPIC, None, key=b"pear")
    print(read_table())


if __name__ == "__main__":
    main()
