"""The asyncio administrator, `barnabas.aio.Admin`."""

import time
import warnings
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from barnabas.client.admin.arguments import bind
from barnabas.client.admin.calls import AdminCalls, keys_move
from barnabas.client.settings import AdminSettings
from barnabas.client.settings.network import network_client_settings
from barnabas.client.settings.tls import ssl_context
from barnabas.connection.drivers.aio import AioDriver
from barnabas.connection.flow import settle
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import ClientClosed, KeysMove

if TYPE_CHECKING:
    from barnabas.client.settings.keywords import AdminKeywords

__all__ = ["Admin"]

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    call: Callable[Concatenate[AdminCalls, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], Coroutine[Any, Any, T]]:
    """The call as a method of the loop."""
    bound = bind(call)

    @wraps(call)
    async def method(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        begin = bound(args, kwargs)
        driver = self._opened()
        promise = driver.run(lambda: settle(begin(self._calls)))
        self._under_way.add(promise)
        try:
            return await driver.wait_for(promise)
        finally:
            self._under_way.discard(promise)

    return method


class Admin:
    """Administers a cluster from an event loop.

        async with barnabas.aio.Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([barnabas.NewTopic("orders", partitions=3)])

    The calls are those of `barnabas.Admin`, to be awaited. A cancelled call may still have its effect.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **named: "Unpack[AdminKeywords]") -> None:
        """Belongs to the loop of its first call, and connects then. Raises UsageError for a setting that does not exist
        or does not fit."""
        self.settings = AdminSettings(settings, **named)
        self._tls = ssl_context(self.settings)
        self._driver: AioDriver | None = None
        self._calls: AdminCalls
        self._closed = False
        self._under_way: set[Promise[Any]] = set()

    def _opened(self) -> AioDriver:
        if self._closed:
            raise ClientClosed("the admin client is closed")
        if self._driver is None:
            client = NetworkClient(
                network_client_settings(self.settings, allow_auto_topic_creation=False), time.monotonic()
            )
            self._driver = AioDriver(client, ssl_context=self._tls, name="admin client")
            self._calls = AdminCalls(client, self.settings)
        return self._driver

    async def close(self) -> None:
        """End at once; calls under way raise ClientClosed. Calling it again does nothing."""
        self._closed = True
        if self._driver is not None:
            self._driver.close()
        for promise in list(self._under_way):  # those between two requests, whose timers do not go off any more
            promise.fail(ClientClosed("the admin client is closed"))

    async def __aenter__(self) -> "Admin":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- calls ------------------------------------------------------------------------------------------------------

    create_topics = _awaited(AdminCalls.create_topics)
    delete_topics = _awaited(AdminCalls.delete_topics)
    list_topics = _awaited(AdminCalls.list_topics)
    describe_topics = _awaited(AdminCalls.describe_topics)
    elect_leaders = _awaited(AdminCalls.elect_leaders)
    delete_records = _awaited(AdminCalls.delete_records)
    list_offsets = _awaited(AdminCalls.list_offsets)

    describe_cluster = _awaited(AdminCalls.describe_cluster)
    describe_log_dirs = _awaited(AdminCalls.describe_log_dirs)
    describe_features = _awaited(AdminCalls.describe_features)
    describe_configs = _awaited(AdminCalls.describe_configs)
    alter_configs = _awaited(AdminCalls.alter_configs)
    list_config_resources = _awaited(AdminCalls.list_config_resources)

    list_groups = _awaited(AdminCalls.list_groups)
    describe_groups = _awaited(AdminCalls.describe_groups)
    delete_groups = _awaited(AdminCalls.delete_groups)
    remove_members = _awaited(AdminCalls.remove_members)
    list_group_offsets = _awaited(AdminCalls.list_group_offsets)
    alter_group_offsets = _awaited(AdminCalls.alter_group_offsets)
    delete_group_offsets = _awaited(AdminCalls.delete_group_offsets)

    list_transactions = _awaited(AdminCalls.list_transactions)
    describe_transactions = _awaited(AdminCalls.describe_transactions)
    describe_producers = _awaited(AdminCalls.describe_producers)
    abort_transaction = _awaited(AdminCalls.abort_transaction)
    end_transaction = _awaited(AdminCalls.end_transaction)

    _create_partitions = _awaited(AdminCalls.create_partitions)
    _topics_with_records = _awaited(AdminCalls.topics_with_records)

    @wraps(AdminCalls.create_partitions)
    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout: float | None = None
    ) -> None:
        for name in await self._topics_with_records(counts, timeout):
            warnings.warn(keys_move(name), KeysMove, stacklevel=2)
        await self._create_partitions(counts, validate_only=validate_only, timeout=timeout)
