"""Half-closed clients, stalled readers, and the end of connections with parked requests."""

import asyncio
import contextlib
import socket

from network.rig import Rig, run

LARGE = 24_000_000


def test_a_half_closed_client_gets_the_whole_of_a_large_answer() -> None:
    async def main() -> None:
        async with Rig() as rig:
            client, connection = await rig.connected()
            await client.send(f"size:{LARGE}")
            await rig.until(lambda: connection.out_bytes)
            client.socket.shutdown(socket.SHUT_WR)
            await rig.turns()
            assert len(await client.receive_bytes()) == LARGE
            assert await client.is_closed()

    run(main())


def test_a_half_closed_client_that_was_answered_leaves_no_timer_behind() -> None:
    async def main() -> None:
        async with Rig() as rig:
            client, connection = await rig.connected()
            await client.send("later:1")
            await rig.until(lambda: rig.script.parked)
            client.socket.shutdown(socket.SHUT_WR)
            await rig.until(lambda: connection._ended is not None)
            timer = connection._ended
            assert timer is not None
            rig.script.answer("1")
            assert await client.receive() == "1"
            await rig.until(lambda: connection.closed)
            assert timer.cancelled()

    run(main())


def test_who_takes_nothing_of_its_answer_is_idle() -> None:
    async def main() -> None:
        async with Rig(connections_max_idle_ms=300) as rig:
            stalled, connection = await rig.connected()
            waiting, parked = await rig.connected()
            await stalled.send(f"size:{LARGE}")
            await waiting.send("later:x")
            await rig.until(lambda: connection.closed)
            assert not parked.closed, "who waits for its answer is not idle"

    run(main())


def test_who_takes_its_answer_slowly_is_not_idle() -> None:
    async def main() -> bool:
        async with Rig(connections_max_idle_ms=800) as rig:
            client, connection = await rig.connected()
            await client.send(f"size:{LARGE}")
            taken = 0
            began = rig.loop.time()
            while (now := rig.loop.time()) - began < 1.6:
                with contextlib.suppress(EOFError, ConnectionResetError):
                    taken += len(await client.read(200_000))
                await asyncio.sleep(0.02)
                if rig.loop.time() - now > 0.4:
                    return False  # the machine stood still: so long without taking anything is idle
            assert not connection.closed
            await client.read(LARGE + 4 - taken)
            return True

    async def until_it_says_something() -> None:
        while not await main():
            pass

    run(until_it_says_something())


def test_whoever_parked_something_hears_of_the_end() -> None:
    async def main() -> None:
        async with Rig() as rig:
            client, connection = await rig.connected()
            await client.send("later:1", "later:2")
            await rig.until(lambda: len(rig.script.parked) == 2)
            heard: list[int] = []
            for name in "12":
                rig.script.parked[name].on_abandoned = lambda name=name: heard.append(int(name))  # type: ignore[misc]
            rig.script.answer("1")
            assert await client.receive() == "1"
            connection.close("test")
            assert heard == [2], "who was answered hears nothing"

    run(main())
