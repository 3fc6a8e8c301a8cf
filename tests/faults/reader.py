"""Our own consumer as a process that can be killed: it notes each record in a file, before or after it commits.

``after`` commits what is noted, ``before`` notes what is committed, ``process`` leaves that to a pool of workers. Ends
with exit code 0 when it is asked to.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from typing import Any

import barnabas
import barnabas.aio
from barnabas.client.errors import ClientError, WokenUp
from barnabas.errors import KafkaError

BATCH = 20


class Reader:
    """Notes are single writes at the end of the file: a kill leaves a whole one or none."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._notes = os.open(options.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def settings(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self._options.address,
            "group_id": self._options.group,
            "client_id": self._options.name,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "auto_commit_interval_ms": 100,  # of a pool of workers
            "session_timeout_ms": 2000,
            "heartbeat_interval_ms": 300,
            "reconnect_backoff_ms": 10,
            "reconnect_backoff_max_ms": 100,
            "partition_assignment_strategy": [self._options.assignor],
        }

    def note(self, record: Any) -> None:
        os.write(self._notes, b"%d %d\n" % (record.partition, record.offset))

    # --- synchronous ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        with barnabas.Consumer(self._options.topic, **self.settings()) as consumer:
            signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
            try:
                if self._options.order == "process":
                    consumer.process(self.note, workers=4, limit=100)
                while True:
                    self._step(consumer, consumer.poll(0.5, max_records=BATCH))
            except WokenUp:
                pass

    def _step(self, consumer: barnabas.Consumer, records: list[Any]) -> None:
        if self._options.order == "after":
            for record in records:
                self.note(record)
        try:
            consumer.commit()
        except WokenUp:
            raise
        except (KafkaError, ClientError):
            return  # others may have them: whoever notes afterwards must not, whoever has noted has done it once
        if self._options.order == "before":
            for record in records:
                self.note(record)

    # --- asyncio ----------------------------------------------------------------------------------------------------

    async def run_on_a_loop(self) -> None:
        async with barnabas.aio.Consumer(self._options.topic, **self.settings()) as consumer:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.wakeup)
            try:
                if self._options.order == "process":
                    await consumer.process(self.note, workers=4, limit=100)
                while True:
                    await self._step_on_a_loop(consumer, await consumer.poll(0.5, max_records=BATCH))
            except WokenUp:
                pass

    async def _step_on_a_loop(self, consumer: barnabas.aio.Consumer, records: list[Any]) -> None:
        if self._options.order == "after":
            for record in records:
                self.note(record)
        try:
            await consumer.commit()
        except WokenUp:
            raise
        except (KafkaError, ClientError):
            return
        if self._options.order == "before":
            for record in records:
                self.note(record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--assignor", required=True)
    parser.add_argument("--order", choices=("after", "before", "process"), required=True)
    parser.add_argument("--front", choices=("sync", "aio"), required=True)
    parser.add_argument("--notes", required=True)
    options = parser.parse_args()
    reader = Reader(options)
    if options.front == "sync":
        reader.run()
    else:
        asyncio.run(reader.run_on_a_loop())


if __name__ == "__main__":
    main()
