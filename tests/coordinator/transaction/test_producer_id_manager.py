"""Producer ids by blocks: when a block is requested, and what happens while none comes."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from barnabas.connection.flow import result_of
from barnabas.coordinator.transaction.producer_id_manager import PREFETCH_BELOW, ProducerIdManager
from barnabas.errors import CoordinatorLoadInProgress, RequestTimedOut

BLOCK = 1000


class Rig:
    """A manager whose prefetches run when the test lets them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.allocated = 0
        self.fails = False
        self.is_slow = False
        self.started: list[Coroutine[Any, Any, None]] = []
        self.ids = ProducerIdManager(loop, self.allocate, self.started.append)

    async def allocate(self) -> range:
        if self.fails:
            raise RequestTimedOut("the registry is locked")
        if self.is_slow:
            await asyncio.sleep(0)
        self.allocated += 1
        return range(self.allocated * BLOCK, (self.allocated + 1) * BLOCK)

    def run_started(self) -> None:
        while self.started:
            result_of(self.started.pop())


@pytest.fixture
def rig() -> Iterator[Rig]:
    loop = asyncio.new_event_loop()
    rig = Rig(loop)
    yield rig
    rig.run_started()
    loop.close()


def test_ids_come_in_order_and_never_twice(rig: Rig) -> None:
    result_of(rig.ids.wait())
    found = []
    for _ in range(3 * BLOCK):
        found.append(rig.ids.next())
        rig.run_started()
    assert found == list(range(BLOCK, 4 * BLOCK))


def test_the_next_block_is_requested_before_the_last_id_is_used(rig: Rig) -> None:
    result_of(rig.ids.wait())
    for _ in range(BLOCK - PREFETCH_BELOW):
        rig.ids.next()
    assert not rig.started
    rig.ids.next()
    assert len(rig.started) == 1


def test_without_an_id_clients_are_told_to_ask_again(rig: Rig) -> None:
    assert rig.ids.is_empty
    with pytest.raises(CoordinatorLoadInProgress):
        rig.ids.next()
    rig.run_started()
    assert rig.ids.next() == BLOCK


def test_a_failed_request_is_made_again(rig: Rig) -> None:
    rig.fails = True
    with pytest.raises(RequestTimedOut):
        result_of(rig.ids.wait())
    with pytest.raises(CoordinatorLoadInProgress):
        rig.ids.next()
    rig.run_started()
    rig.fails = False
    with pytest.raises(CoordinatorLoadInProgress):
        rig.ids.next()
    rig.run_started()
    assert rig.ids.next() == BLOCK


def test_producers_that_wait_together_share_a_block() -> None:
    async def scenario() -> None:
        rig = Rig(asyncio.get_running_loop())
        rig.is_slow = True
        await asyncio.gather(*(rig.ids.wait() for _ in range(20)))
        assert rig.allocated == 1

    asyncio.run(scenario())
