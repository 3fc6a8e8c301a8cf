"""The asyncio administrator, `barnabas.aio.Admin`."""

import time
import warnings
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from barnabas.client.admin.admin_client import KafkaAdminClient
from barnabas.client.admin.arguments import bind
from barnabas.client.admin.topics import keys_move_warning
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
    call: Callable[Concatenate[KafkaAdminClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], Coroutine[Any, Any, T]]:
    """Returns an operation as a method to be awaited."""
    bound = bind(call)

    @wraps(call)
    async def method(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        begin = bound(args, kwargs)
        driver = self._opened()
        promise = driver.run(lambda: settle(begin(self._admin_client)))
        self._running.add(promise)
        try:
            return await driver.wait_for(promise)
        finally:
            self._running.discard(promise)

    return method


class Admin:
    """Administers a cluster from an event loop.

        async with barnabas.aio.Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([barnabas.NewTopic("orders", partitions=3)])

    The calls are those of `barnabas.Admin`, to be awaited. A cancelled call may still have its effect.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **named: "Unpack[AdminKeywords]") -> None:
        """Connects at the first call, and belongs to the event loop of that. Raises UsageError for a setting that does
        not exist or does not fit."""
        self.settings = AdminSettings(settings, **named)
        self._tls = ssl_context(self.settings)
        self._driver: AioDriver | None = None
        self._admin_client: KafkaAdminClient
        self._closed = False
        self._running: set[Promise[Any]] = set()

    def _opened(self) -> AioDriver:
        if self._closed:
            raise ClientClosed("the admin client is closed")
        if self._driver is None:
            client = NetworkClient(
                network_client_settings(self.settings, allow_auto_topic_creation=False), time.monotonic()
            )
            self._driver = AioDriver(client, ssl_context=self._tls, name="admin client")
            self._admin_client = KafkaAdminClient(client, self.settings)
        return self._driver

    async def close(self) -> None:
        """Closes all connections at once; running calls raise ClientClosed. A second close does nothing."""
        self._closed = True
        if self._driver is not None:
            self._driver.close()
        for promise in list(self._running):  # calls between two requests, whose timers do not go off any more
            promise.fail(ClientClosed("the admin client is closed"))

    async def __aenter__(self) -> "Admin":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- operations -------------------------------------------------------------------------------------------------

    create_topics = _awaited(KafkaAdminClient.create_topics)
    delete_topics = _awaited(KafkaAdminClient.delete_topics)
    list_topics = _awaited(KafkaAdminClient.list_topics)
    describe_topics = _awaited(KafkaAdminClient.describe_topics)
    eligible_leaders = _awaited(KafkaAdminClient.eligible_leaders)
    elect_leaders = _awaited(KafkaAdminClient.elect_leaders)
    alter_partition_reassignments = _awaited(KafkaAdminClient.alter_partition_reassignments)
    list_partition_reassignments = _awaited(KafkaAdminClient.list_partition_reassignments)
    delete_records = _awaited(KafkaAdminClient.delete_records)
    list_offsets = _awaited(KafkaAdminClient.list_offsets)

    describe_cluster = _awaited(KafkaAdminClient.describe_cluster)
    unregister_broker = _awaited(KafkaAdminClient.unregister_broker)
    leader_changes = _awaited(KafkaAdminClient.leader_changes)
    broker_releases = _awaited(KafkaAdminClient.broker_releases)
    describe_log_dirs = _awaited(KafkaAdminClient.describe_log_dirs)
    alter_replica_log_dirs = _awaited(KafkaAdminClient.alter_replica_log_dirs)
    describe_features = _awaited(KafkaAdminClient.describe_features)
    update_features = _awaited(KafkaAdminClient.update_features)
    describe_configs = _awaited(KafkaAdminClient.describe_configs)
    alter_configs = _awaited(KafkaAdminClient.alter_configs)
    list_config_resources = _awaited(KafkaAdminClient.list_config_resources)

    list_groups = _awaited(KafkaAdminClient.list_groups)
    describe_groups = _awaited(KafkaAdminClient.describe_groups)
    group_coordinators = _awaited(KafkaAdminClient.group_coordinators)
    delete_groups = _awaited(KafkaAdminClient.delete_groups)
    remove_members = _awaited(KafkaAdminClient.remove_members)
    list_group_offsets = _awaited(KafkaAdminClient.list_group_offsets)
    alter_group_offsets = _awaited(KafkaAdminClient.alter_group_offsets)
    delete_group_offsets = _awaited(KafkaAdminClient.delete_group_offsets)

    list_transactions = _awaited(KafkaAdminClient.list_transactions)
    describe_transactions = _awaited(KafkaAdminClient.describe_transactions)
    describe_producers = _awaited(KafkaAdminClient.describe_producers)
    abort_transaction = _awaited(KafkaAdminClient.abort_transaction)
    end_transaction = _awaited(KafkaAdminClient.end_transaction)

    _create_partitions = _awaited(KafkaAdminClient.create_partitions)
    _topics_with_records = _awaited(KafkaAdminClient.topics_with_records)

    @wraps(KafkaAdminClient.create_partitions)
    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout: float | None = None
    ) -> None:
        for name in await self._topics_with_records(counts, timeout):
            warnings.warn(keys_move_warning(name), KeysMove, stacklevel=2)
        await self._create_partitions(counts, validate_only=validate_only, timeout=timeout)
