"""The synchronous administrator, `barnabas.Admin`. `barnabas.aio.Admin` is the same for asyncio."""

import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from barnabas.client.admin.admin_client import KafkaAdminClient
from barnabas.client.admin.arguments import bind
from barnabas.client.admin.topics import keys_move_warning
from barnabas.client.settings.admin import AdminSettings
from barnabas.client.settings.network import network_client_settings
from barnabas.client.settings.tls import ssl_context
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.flow import settle
from barnabas.connection.network_client import NetworkClient
from barnabas.errors import KeysMove

if TYPE_CHECKING:
    from barnabas.client.settings.keywords import AdminKeywords

__all__ = ["Admin"]

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    call: Callable[Concatenate[KafkaAdminClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], T]:
    """Returns an operation as a method that waits for the result."""
    bound = bind(call)

    @wraps(call)
    def method(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        begin = bound(args, kwargs)
        driver = self._opened()
        return driver.wait_for(driver.run(lambda: settle(begin(self._admin_client))))

    return method


class Admin:
    """Administers a cluster: topics, groups, settings, transactions.

        with barnabas.Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([barnabas.NewTopic("orders", partitions=3)])

    Settings are Kafka's, as keywords (`default_api_timeout_ms=5000`) or in a dict (`{"default.api.timeout.ms": 5000}`);
    docs/client-settings.md lists all of them.

    A call about one item raises its error; a call about several raises ItemsFailed, which has the errors of the failed
    items and the results of the others. Retriable errors are retried for `timeout` seconds (by default
    default.api.timeout.ms); after that the call raises OperationTimedOut with all attempts. Partitions are
    `(topic, number)`.

    Several threads may share it; after a fork the child has connections of its own. Close it, or use it as a context
    manager.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **named: "Unpack[AdminKeywords]") -> None:
        """Connects at the first use. Raises UsageError for a setting that does not exist or does not fit."""
        self.settings = AdminSettings(settings, **named)
        self._tls = ssl_context(self.settings)
        self._forked = False
        self._reopening = threading.Lock()
        self._open()

    def _open(self) -> None:
        client = NetworkClient(
            network_client_settings(self.settings, allow_auto_topic_creation=False), time.monotonic()
        )
        self._driver = SyncDriver(client, ssl_context=self._tls, on_fork=self._after_fork, name="admin client")
        self._admin_client = KafkaAdminClient(client, self.settings)

    def _after_fork(self) -> None:
        """Marks a child process after a fork, to which the parent's connections do not belong."""
        self._forked = True
        self._reopening = threading.Lock()

    def _opened(self) -> SyncDriver:
        if self._forked:
            with self._reopening:
                if self._forked:
                    self._open()
                    self._forked = False
        return self._driver

    def close(self) -> None:
        """Closes all connections at once; calls in other threads raise ClientClosed. A second close does nothing."""
        self._forked = False
        self._driver.close()

    def __enter__(self) -> "Admin":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- operations -------------------------------------------------------------------------------------------------

    create_topics = _waiting(KafkaAdminClient.create_topics)
    delete_topics = _waiting(KafkaAdminClient.delete_topics)
    list_topics = _waiting(KafkaAdminClient.list_topics)
    describe_topics = _waiting(KafkaAdminClient.describe_topics)
    eligible_leaders = _waiting(KafkaAdminClient.eligible_leaders)
    elect_leaders = _waiting(KafkaAdminClient.elect_leaders)
    alter_partition_reassignments = _waiting(KafkaAdminClient.alter_partition_reassignments)
    list_partition_reassignments = _waiting(KafkaAdminClient.list_partition_reassignments)
    delete_records = _waiting(KafkaAdminClient.delete_records)
    list_offsets = _waiting(KafkaAdminClient.list_offsets)

    describe_cluster = _waiting(KafkaAdminClient.describe_cluster)
    unregister_broker = _waiting(KafkaAdminClient.unregister_broker)
    leader_changes = _waiting(KafkaAdminClient.leader_changes)
    broker_releases = _waiting(KafkaAdminClient.broker_releases)
    describe_log_dirs = _waiting(KafkaAdminClient.describe_log_dirs)
    alter_replica_log_dirs = _waiting(KafkaAdminClient.alter_replica_log_dirs)
    describe_features = _waiting(KafkaAdminClient.describe_features)
    update_features = _waiting(KafkaAdminClient.update_features)
    describe_configs = _waiting(KafkaAdminClient.describe_configs)
    alter_configs = _waiting(KafkaAdminClient.alter_configs)
    list_config_resources = _waiting(KafkaAdminClient.list_config_resources)

    list_groups = _waiting(KafkaAdminClient.list_groups)
    describe_groups = _waiting(KafkaAdminClient.describe_groups)
    group_coordinators = _waiting(KafkaAdminClient.group_coordinators)
    delete_groups = _waiting(KafkaAdminClient.delete_groups)
    remove_members = _waiting(KafkaAdminClient.remove_members)
    list_group_offsets = _waiting(KafkaAdminClient.list_group_offsets)
    alter_group_offsets = _waiting(KafkaAdminClient.alter_group_offsets)
    delete_group_offsets = _waiting(KafkaAdminClient.delete_group_offsets)

    list_transactions = _waiting(KafkaAdminClient.list_transactions)
    describe_transactions = _waiting(KafkaAdminClient.describe_transactions)
    describe_producers = _waiting(KafkaAdminClient.describe_producers)
    abort_transaction = _waiting(KafkaAdminClient.abort_transaction)
    end_transaction = _waiting(KafkaAdminClient.end_transaction)

    _create_partitions = _waiting(KafkaAdminClient.create_partitions)
    _topics_with_records = _waiting(KafkaAdminClient.topics_with_records)

    def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout: float | None = None
    ) -> None:
        for name in self._topics_with_records(counts, timeout):
            warnings.warn(keys_move_warning(name), KeysMove, stacklevel=2)
        self._create_partitions(counts, validate_only=validate_only, timeout=timeout)

    create_partitions.__doc__ = KafkaAdminClient.create_partitions.__doc__
