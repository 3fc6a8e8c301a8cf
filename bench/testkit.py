"""Measures the test kit in this process: start to first acknowledged record, reset, restart.

python -m bench.testkit
"""

import statistics
import time
from collections.abc import Callable

from barnabas import Producer
from barnabas.testing import Broker

TOPICS = 5
PARTITIONS = 3


def main() -> None:
    rows = [("start to first acknowledged record", [first_record() for _ in range(10)])]
    with Broker() as broker:
        rows.append((f"reset of {TOPICS} topics x {PARTITIONS} partitions", resets(broker)))
        rows.append(("restart", [timed(broker.restart) for _ in range(10)]))
    print(f"{'':44} {'median':>9} {'max':>9}")
    for name, seconds in rows:
        print(f"{name:44} {statistics.median(seconds) * 1e3:6.1f} ms {max(seconds) * 1e3:6.1f} ms")


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def first_record() -> float:
    """Returns the seconds from the start of a broker to the acknowledgement."""
    began = time.perf_counter()
    with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").result()
        return time.perf_counter() - began


def resets(broker: Broker) -> list[float]:
    found = []
    for _ in range(20):
        for number in range(TOPICS):
            broker.create_topic(f"t{number}", partitions=PARTITIONS)
        found.append(timed(broker.reset))
    return found


if __name__ == "__main__":
    main()
