"""`barnabas.aio.Admin` on its loop."""

import asyncio

import pytest

import barnabas
import barnabas.aio
from barnabas.errors import ClientClosed
from barnabas.testing import Broker


def test_close_ends_a_call_that_waits_between_two_tries(broker: Broker) -> None:
    async def story() -> None:
        admin = barnabas.aio.Admin(bootstrap_servers="127.0.0.1:1")
        call = asyncio.ensure_future(admin.list_groups())
        await asyncio.sleep(0)
        await admin.close()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(call, 60)

    asyncio.run(story())
