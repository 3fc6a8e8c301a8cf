"""Slow work in a pool of threads. A record that cannot be handled goes to a topic of dead letters, with the reason."""

import itertools
import json
import os

import barnabas
from barnabas.errors import WokenUp

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP", "127.0.0.1:9092")
ORDERS = ["1200", "250", "no number", "300"]


def main() -> None:
    totals = []
    handled = itertools.count(1)

    def handle(record: barnabas.ConsumerRecord) -> None:
        order = json.loads(record.value)  # raises for what is no JSON
        totals.append(order)
        finished()

    def bury(record: barnabas.ConsumerRecord, error: Exception) -> None:
        headers = {"reason": str(error), "from": f"{record.topic}-{record.partition}@{record.offset}"}
        producer.send("example-dead-letters", record.value, key=record.key, headers=headers).result(timeout=10)
        finished()

    def finished() -> None:
        if next(handled) == len(ORDERS):
            consumer.wakeup()  # a service would go on

    with (
        barnabas.Producer(bootstrap_servers=SERVERS) as producer,
        barnabas.Consumer(
            "example-orders", bootstrap_servers=SERVERS, group_id="example-totals", auto_offset_reset="earliest"
        ) as consumer,
    ):
        for order in ORDERS:
            producer.send("example-orders", order.encode())
        producer.flush()
        try:
            consumer.process(handle, workers=4, on_error=bury)
        except WokenUp:
            print(f"{sum(totals)} in {len(totals)} orders, {len(ORDERS) - len(totals)} dead letter")


if __name__ == "__main__":
    main()
