"""`barnabas.Consumer` among threads, signals and forks."""

import contextlib
import os
from typing import Any

import pytest

import barnabas
from barnabas.errors import UsageError

pytestmark = pytest.mark.timeout(120)  # here nearly everything ends only when all records have come


def test_a_constructor_that_fails_leaves_nothing_open(settings: dict[str, Any]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(UsageError, match="no regular expression"):
            barnabas.Consumer("^(", **settings)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_the_child_of_a_fork_reads_for_itself(topic: str, settings: dict[str, Any]) -> None:
    del settings["group_id"]
    consumer = barnabas.Consumer(**settings)
    consumer.assign([(topic, 0)])
    assert consumer.poll(60, max_records=10)[-1].offset == 9
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.write(write, b"%d" % consumer.poll(60, max_records=1)[0].offset)
        os._exit(0)
    os.close(write)
    assert os.read(read, 10) == b"0"  # a consumer of its own, at the beginning
    os.close(read)
    os.waitpid(child, 0)
    assert consumer.poll(60, max_records=1)[0].offset == 10
    consumer.close()
