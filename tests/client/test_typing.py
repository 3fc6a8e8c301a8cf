"""What type checkers see of the clients: each setting as a keyword with its type, and the types of records."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json
import re

import barnabas


def names_and_types() -> None:
    barnabas.Producer(bootstrap_servers="b:9092", linger_ms=5, acks="all", compression_type="zstd", client_id=None)
    barnabas.aio.Producer(bootstrap_servers=["b:9092"], linger_ms=5, partitioner_class="round_robin")
    barnabas.Consumer("orders", "^returns-", group_id="g", auto_offset_reset="earliest", on_lost=print)
    barnabas.aio.Consumer(re.compile("orders-.*"), group_id="g", max_poll_records=100)
    barnabas.Admin(default_api_timeout_ms=5000)
    barnabas.aio.Admin({"bootstrap.servers": "b:9092"}, default_api_timeout_ms=5000)
    barnabas.Producer(lingerms=5)  # WRONG: lingerms
    barnabas.aio.Producer(lingerms=5)  # WRONG: lingerms
    barnabas.Consumer("orders", groupid="g")  # WRONG: groupid
    barnabas.aio.Consumer("orders", groupid="g")  # WRONG: groupid
    barnabas.Admin(api_timeout_ms=5)  # WRONG: api_timeout_ms
    barnabas.aio.Admin(api_timeout_ms=5)  # WRONG: api_timeout_ms
    barnabas.Producer(group_id="g")  # WRONG: group_id
    barnabas.Producer(linger_ms="soon")  # WRONG: "str"
    barnabas.Consumer("orders", enable_auto_commit="yes")  # WRONG: "str"
    barnabas.Consumer(5)  # WRONG: "int"


def records() -> None:
    with barnabas.Consumer("orders") as consumer:
        for record in consumer:
            reveal_type(record.value)  # TYPE: bytes | None
            reveal_type(record.key)  # TYPE: bytes | None
            reveal_type(record.offset)  # TYPE: int
        reveal_type(consumer.poll())  # TYPE: list[ConsumerRecord[bytes, bytes]]
        for batch in consumer.batches():
            reveal_type(batch.values())  # TYPE: list[bytes | None]
            reveal_type(batch[0].value)  # TYPE: bytes | None
    numbers = barnabas.Consumer("orders", key_deserializer=bytes.decode, value_deserializer=lambda value: int(value))
    reveal_type(numbers.poll()[0].key)  # TYPE: str | None
    reveal_type(numbers.poll()[0].value)  # TYPE: int | None
    reveal_type(barnabas.Consumer("orders", value_deserializer=json.loads).poll()[0].value)  # TYPE: Any


async def records_there() -> None:
    async with barnabas.aio.Consumer("orders", value_deserializer=bytes.decode) as consumer:
        async for record in consumer:
            reveal_type(record.value)  # TYPE: str | None
            reveal_type(record.key)  # TYPE: bytes | None


def handle(record: barnabas.ConsumerRecord[str, int]) -> None:
    print(record.topic, record.value)


def errors(producer: barnabas.Producer) -> None:
    try:
        producer.send("orders", b"v").result()
    except barnabas.errors.TopicNotFound as error:
        print(error.attempts)
"""


@pytest.mark.timeout(180)
def test_mypy_knows_every_setting_and_the_types_of_records(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    source = Path(__file__).parents[2] / "src"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", str(program)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"MYPYPATH": str(source)}, cwd=tmp_path
    )
    found: dict[int, str] = {}
    for line in done.stdout.splitlines():
        if line.startswith("program.py:"):
            _, number, message = line.split(":", 2)
            found[int(number)] = found.get(int(number), "") + message.replace("barnabas.records.consumer_record.", "")
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        _, _, wrong = line.partition("# WRONG: ")
        _, _, revealed = line.partition("# TYPE: ")
        said = found.pop(number, "")
        if wrong:
            assert re.search(f" error: .*{re.escape(wrong)}", said), (line, said)
        elif revealed:
            assert f'Revealed type is "{revealed}' in said, (line, said)
        else:
            assert said == "", (line, said)
    assert not found, found
