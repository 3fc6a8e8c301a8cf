"""Questions and answers over two topics, with asyncio. A header says which question an answer belongs to."""

import asyncio
import contextlib
import os
import uuid

from barnabas.aio import Consumer, Producer

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP", "127.0.0.1:9092")


async def answer_questions() -> None:
    """The service: it goes on until it is cancelled."""
    async with (
        Producer(bootstrap_servers=SERVERS) as producer,
        Consumer(
            "example-questions",
            bootstrap_servers=SERVERS,
            group_id="example-squares",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        async for record in consumer:
            square = int(record.value) ** 2
            await producer.send("example-answers", b"%d" % square, headers=dict(record.headers))


async def ask(numbers: list[int]) -> list[int]:
    """Returns the answers, in the order of the questions."""
    questions = {uuid.uuid4().bytes: number for number in numbers}
    answers: dict[bytes, int] = {}
    async with (
        Producer(bootstrap_servers=SERVERS) as producer,
        Consumer(
            "example-answers",
            bootstrap_servers=SERVERS,
            group_id=f"example-{uuid.uuid4()}",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        for question, number in questions.items():
            await producer.send("example-questions", b"%d" % number, headers={"question": question})
        async for record in consumer:
            question = dict(record.headers)["question"]
            if question in questions:
                answers[question] = int(record.value)
            if len(answers) == len(questions):
                break
    return [answers[question] for question in questions]


async def main() -> None:
    service = asyncio.create_task(answer_questions())
    print(await ask([1, 2, 3, 4]))
    service.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await service


if __name__ == "__main__":
    asyncio.run(main())
