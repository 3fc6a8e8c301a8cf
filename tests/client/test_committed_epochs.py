"""Whatever commits offsets commits the leader epoch with them, by which the next owner notices a log that was cut.

| road | epoch |
|---|---|
| `commit()`, automatic commits, `process`, `next_offsets` in a transaction | of the record before the position |
| `commit(record)` | the record's |
| `commit({partition: number})`, `consume --group` | the position's: no record before it is of a later one |
| `Admin.alter_group_offsets` of numbers, `groups reset-offsets`, `switch_generation` | the leader's, up to the end |
| Spark's `groupIdForLag` | that of the batch's end |

Without one: a number of which no position is known, as in a producer; and the decisions of Spark's sink and the demo's
progress, whose "offsets" count batches and events.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
from barnabas import aio
from barnabas.cli.main import run
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.spark.sink.generations import GENERATION, switch_generation
from barnabas.testing import Broker
from barnabas.types import TopicPartition

TOPIC, COUNT = "t", 6
PARTITION = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC)
        broker.produce(TOPIC, "old", headers={GENERATION: "1"})
        for number in range(1, COUNT):
            broker.produce(TOPIC, str(number), headers={GENERATION: "2"})
        yield broker


@pytest.fixture
def epoch(broker: Broker) -> int:
    found: int = broker.admin.list_offsets({PARTITION: "latest"})[PARTITION].leader_epoch
    assert found >= 0, "-1 is none"
    return found


def reading(broker: Broker, group: str, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    } | settings


def all_records(consumer: "barnabas.Consumer[Any, Any]") -> list[Any]:
    records: list[Any] = []
    while len(records) < COUNT:
        records += consumer.poll(timeout=30)
    return records


def by_commit(broker: Broker, group: str) -> None:
    with barnabas.Consumer(TOPIC, **reading(broker, group)) as consumer:
        all_records(consumer)
        consumer.commit()


def by_record(broker: Broker, group: str) -> None:
    with barnabas.Consumer(TOPIC, **reading(broker, group)) as consumer:
        consumer.commit(all_records(consumer)[3])


def by_number(broker: Broker, group: str) -> None:
    with barnabas.Consumer(TOPIC, **reading(broker, group)) as consumer:
        all_records(consumer)
        consumer.commit({PARTITION: 4})


def by_number_later(broker: Broker, group: str) -> None:
    with barnabas.Consumer(TOPIC, **reading(broker, group)) as consumer:
        all_records(consumer)
        done: list[Any] = []
        consumer.commit_async({PARTITION: 4}, callback=lambda *outcome: done.append(outcome))
        while not done:
            consumer.poll(timeout=0.05)


def automatically(broker: Broker, group: str) -> None:
    with barnabas.Consumer(TOPIC, **reading(broker, group, enable_auto_commit=True)) as consumer:
        all_records(consumer)


def by_process(broker: Broker, group: str) -> None:
    left = COUNT

    def work(record: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            consumer.wakeup()

    with barnabas.Consumer(TOPIC, **reading(broker, group)) as consumer, pytest.raises(barnabas.errors.WokenUp):
        consumer.process(work, workers=1)


def by_transaction(broker: Broker, group: str) -> None:
    with (
        barnabas.Consumer(TOPIC, **reading(broker, group)) as consumer,
        barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=group) as producer,
    ):
        producer.init_transactions()
        all_records(consumer)
        with producer.transaction():
            producer.send_offsets_to_transaction(consumer.next_offsets(), consumer.group_metadata())


def by_aio(broker: Broker, group: str) -> None:
    async def main() -> None:
        async with aio.Consumer(TOPIC, **reading(broker, group)) as consumer:
            read = 0
            while read < COUNT:
                read += len(await consumer.poll(timeout=30))
            await consumer.commit({PARTITION: 5})

    asyncio.run(main())


def by_admin(broker: Broker, group: str) -> None:
    broker.admin.alter_group_offsets(group, {PARTITION: 4})


def by_the_consume_command(broker: Broker, group: str) -> None:
    assert run(["consume", TOPIC, "--group", group, "-c", str(COUNT), "-b", broker.bootstrap_servers]) == 0


def by_the_reset_command(broker: Broker, group: str) -> None:
    wanted = ["--topic", TOPIC, "--to-latest", "--execute"]
    assert run(["groups", "reset-offsets", group, *wanted, "-b", broker.bootstrap_servers]) == 0


def by_switching_generations(broker: Broker, group: str) -> None:
    assert switch_generation(broker.bootstrap_servers, group, TOPIC) == {PARTITION: 1}


ROADS = [
    by_commit, by_record, by_number, by_number_later, automatically, by_process, by_transaction, by_aio, by_admin,
    by_the_consume_command, by_the_reset_command, by_switching_generations,
]  # fmt: skip


@pytest.mark.parametrize("road", ROADS, ids=lambda road: road.__name__)
def test_the_epoch_is_committed_with_the_offset(
    broker: Broker, epoch: int, road: Callable[[Broker, str], None]
) -> None:
    road(broker, road.__name__)
    committed = broker.admin.list_group_offsets(road.__name__)[PARTITION]
    assert committed.offset > 0
    assert committed.leader_epoch == epoch


def test_an_offset_of_which_nothing_is_known_has_no_epoch(broker: Broker) -> None:
    broker.admin.alter_group_offsets("ahead", {PARTITION: COUNT + 1})
    assert broker.admin.list_group_offsets("ahead")[PARTITION] == OffsetAndMetadata(COUNT + 1)
    with barnabas.Consumer(TOPIC, **reading(broker, "ahead-too")) as consumer:
        all_records(consumer)
        consumer.commit({PARTITION: COUNT + 1})
    assert broker.admin.list_group_offsets("ahead-too")[PARTITION] == OffsetAndMetadata(COUNT + 1)
