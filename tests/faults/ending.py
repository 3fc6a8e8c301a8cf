"""A consumer that is blocked somewhere when Ctrl-C comes: says ``ready`` before it waits, ``out`` once it is out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from typing import Any

import barnabas
import barnabas.aio
from barnabas.types import TopicPartition


def say(word: str) -> None:
    print(word, flush=True)


def begin(where: str) -> None:
    """Everything is as it should be; once the parent has said so (it may have stopped the broker), the wait begins."""
    say("joined")
    sys.stdin.readline()
    if where != "process":
        say("ready")


def handle(_: Any) -> None:
    say("ready")
    threading.Event().wait()


def block(consumer: barnabas.Consumer, where: str, topic: str) -> None:
    begin(where)
    if where == "poll":
        while True:
            consumer.poll()
    elif where == "iterate":
        for _ in consumer:
            pass
    elif where == "commit":
        consumer.commit({TopicPartition(topic, 0): 1})
    elif where == "end_offsets":
        consumer.end_offsets([(topic, 0)])
    elif where == "process":
        consumer.seek_to_beginning()
        consumer.process(handle)
    elif where == "close":
        consumer.close()


async def block_a_loop(where: str, topic: str, settings: dict[str, Any]) -> None:
    async with barnabas.aio.Consumer(topic, **settings) as consumer:
        while not await consumer.poll(1):
            pass
        begin(where)
        if where == "poll":
            while True:
                await consumer.poll()
        elif where == "iterate":
            async for _ in consumer:
                pass
        elif where == "commit":
            await consumer.commit({TopicPartition(topic, 0): 1})
        elif where == "end_offsets":
            await consumer.end_offsets([(topic, 0)])
        elif where == "process":
            consumer.seek_to_beginning()
            await consumer.process(handle_soon)
        elif where == "close":
            await consumer.close()


async def handle_soon(_: Any) -> None:
    say("ready")
    await asyncio.Event().wait()


def main() -> None:
    _, front, where, address, topic = sys.argv
    settings = {
        "bootstrap_servers": address,
        "group_id": f"{front}-{where}-{os.getpid()}",
        "auto_offset_reset": "earliest",
    }
    with contextlib.suppress(KeyboardInterrupt):
        if front == "aio":
            asyncio.run(block_a_loop(where, topic, settings))
        else:
            with barnabas.Consumer(topic, **settings) as consumer:
                while not consumer.poll(1):
                    pass
                block(consumer, where, topic)
    say("out")


if __name__ == "__main__":
    main()
