"""A bug in a handler: it stays loud, and no later answer takes the place of the one that is missing."""

import asyncio
from typing import Any

from barnabas.network.connection import Connection, Parts
from network.rig import Rig, run


def test_a_failing_handler_ends_its_connection_alone_and_is_heard_of() -> None:
    heard: list[dict[str, Any]] = []

    def fail(connection: Connection) -> Parts:
        raise ZeroDivisionError("a bug")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        async with Rig() as rig:
            rig.script.others["fail"] = fail
            other, _ = await rig.connected()
            client, connection = await rig.connected()
            await client.send("echo:a", "fail:", "echo:b")
            await rig.until(lambda: connection.closed)
            assert await client.receive() == "a"
            assert await client.is_closed()
            await other.send("echo:c")
            assert await other.receive() == "c"

    run(main())
    assert [type(context["exception"]) for context in heard] == [ZeroDivisionError]
