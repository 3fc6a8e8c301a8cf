"""`barnabas.Producer` as a process that can be killed: numbered records, or transactions of them, until SIGTERM.

What it hears it appends to a file, a line each, which survives its death: `ack PARTITION SEQUENCE OFFSET`,
`failed PARTITION SEQUENCE ERROR`, `committed NUMBER`, `aborted NUMBER`, and at its own end `end SENT SENT ...`.
Values are `NAME SEQUENCE`, and in transactions `NAME NUMBER INDEX COUNT`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from functools import partial
from types import FrameType
from typing import Any

import barnabas
from barnabas.client.errors import TransactionFailed
from barnabas.errors import BarnabasError

ABORT_SHARE = 0.2
COUNT_MAX = 30


class Sender:
    """See the module."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rng = random.Random(options.seed)
        self._file = os.open(options.heard, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._stopped = False
        settings: dict[str, Any] = {
            "bootstrap.servers": options.address,
            "linger.ms": 1,
            "delivery.timeout.ms": 600_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
        }
        if options.transactional_id:
            settings["transactional.id"] = options.transactional_id
        self._producer = barnabas.Producer(settings)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._on_signal)
        if self._options.transactional_id:
            self._transact()
        else:
            self._send()
        self._producer.close()

    def _send(self) -> None:
        sent = [0] * self._options.partitions
        while not self._stopped:
            for _ in range(self._rng.randint(1, 100)):
                partition = self._rng.randrange(len(sent))
                value = b"%s %d" % (self._options.name.encode(), sent[partition])
                told = partial(self._delivered, partition, sent[partition])
                self._producer.send(self._options.topic, value, partition=partition, on_delivery=told)
                sent[partition] += 1
            time.sleep(0.005)
        self._producer.flush()
        self._tell("end", *sent)

    def _delivered(self, partition: int, sequence: int, error: BaseException | None, metadata: Any) -> None:
        if error is None:
            self._tell("ack", partition, sequence, metadata.offset)
        else:
            self._tell("failed", partition, sequence, repr(error))

    def _transact(self) -> None:
        producer = self._producer
        producer.init_transactions(timeout=60)
        number = 0
        while not self._stopped:
            producer.begin_transaction()
            try:
                self._fill(number)
                commits = self._rng.random() >= ABORT_SHARE
                if commits:
                    producer.commit_transaction(60)
            except TransactionFailed as error:
                print(f"aborts: {error}", file=sys.stderr, flush=True)
                commits = False
            if not commits:
                producer.abort_transaction(60)
            self._tell("committed" if commits else "aborted", number)
            number += 1
        self._tell("end")

    def _fill(self, number: int) -> None:
        options = self._options
        count = self._rng.randint(1, COUNT_MAX)
        for index in range(count):
            value = b"%s %d %d %d" % (options.name.encode(), number, index, count)
            self._producer.send(options.topic, value, partition=self._rng.randrange(options.partitions))
        if self._rng.random() < 0.3:
            self._producer.flush()

    def _tell(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopped = True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("address", "name", "topic", "heard", "seed"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--transactional-id", default="")
    try:
        Sender(parser.parse_args()).run()
    except BarnabasError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
