"""Calls about brokers and settings."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from barnabas.client.admin.base import Calls, partitions_of
from barnabas.client.admin.configs import (
    Change,
    ConfigEntry,
    ConfigResource,
    alter_request,
    changes_of,
    config_entry,
    describe_request,
    list_request,
    resource_error,
    resource_kind,
)
from barnabas.client.admin.job import Answer, Job, controller_moves
from barnabas.client.admin.storage import (
    ClusterDescription,
    Features,
    LogDir,
    features,
    log_dir,
    log_dirs_request,
)
from barnabas.connection.cluster import Broker, brokers_of
from barnabas.connection.network_client import ANY, CONTROLLER, Node, Target
from barnabas.errors import UnsupportedVersion, error_for

__all__ = ["ClusterCalls"]


class ClusterCalls(Calls):
    """See the module. `timeout` is in seconds, default.api.timeout.ms by default."""

    async def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """The cluster's id, its brokers and its controller."""
        from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
        from barnabas.protocol.messages.metadata import MetadataRequest

        job = self._job("describe_cluster", timeout)
        try:
            response = await job.ask(
                DescribeClusterRequest(),
                ANY,
                check=lambda r: r.error_code and error_for(r.error_code, r.error_message or ""),
            )
        except UnsupportedVersion:  # before Kafka 2.8
            response = await job.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), ANY)
            return ClusterDescription(response.cluster_id, response.controller_id, brokers_of(response))
        brokers = {b.broker_id: Broker(b.broker_id, b.host, b.port, b.rack) for b in response.brokers}
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)

    async def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[int, list[LogDir]]:
        """The log directories of these brokers (None: all), with the replicas in them (`partitions`: only of these).

        A directory that failed has an error code. Raises ItemsFailed, by broker.
        """
        job = self._job("describe_log_dirs", timeout)
        brokers = await self._brokers(job, None if broker_ids is None else list(broker_ids))
        wanted = None if partitions is None else partitions_of(partitions)

        def answers(response: Any, asked: list[int]) -> Iterable[Answer[int, list[LogDir]]]:
            yield asked[0], response.error_code, [log_dir(asked[0], result) for result in response.results]

        return (await job.each(brokers, Node, lambda _: log_dirs_request(wanted), answers)).result()

    async def describe_features(self, *, timeout: float | None = None) -> Features:
        """The levels of features such as `transaction.version`; empty where the brokers are older than features."""
        from barnabas.protocol.messages.api_versions import ApiVersionsRequest
        from barnabas.version import __version__

        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        return features(await self._job("describe_features", timeout).ask(request, ANY, check=lambda r: r.error_code))

    # --- settings ---------------------------------------------------------------------------------------------------

    async def describe_configs(
        self,
        resources: Iterable[tuple[str, str]],
        *,
        keys: Sequence[str] | None = None,
        documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings (None: all) of `("topic", name)`, `("broker", "1")` and the like, by name.

        Raises ItemsFailed (UnknownTopicOrPartition, ...), UsageError.
        """
        job = self._job("describe_configs", timeout)
        wanted = _resources(resources)
        await self._check_brokers(job, wanted)

        def answers(response: Any, _: object) -> Iterable[Answer[ConfigResource, dict[str, ConfigEntry]]]:
            for r in response.results:
                where = ConfigResource(resource_kind(r.resource_type), r.resource_name)
                error = r.error_code and resource_error(r.error_code, r.error_message, *where)
                yield where, error, {config.name: config_entry(config) for config in r.configs}

        outcome = await job.each(
            wanted,
            lambda where: _of_one_broker(where) or ANY,
            lambda asked: describe_request(asked, keys, documentation=documentation),
            answers,
            again=controller_moves,
        )
        return outcome.result()

    async def alter_configs(
        self,
        changes: Mapping[tuple[str, str], Change],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change the named settings and no others: `{("topic", "orders"): {"retention.ms": "60000"}}`.

        A value of None goes back to the default; `ConfigChange` also appends to lists and takes away from them.
        `validate_only` checks and changes nothing. Raises ItemsFailed (InvalidConfig, ...), UsageError.
        """
        job = self._job("alter_configs", timeout)
        wanted = {ConfigResource(*where): changes_of(change) for where, change in changes.items()}
        await self._check_brokers(job, _resources(wanted))

        def answers(response: Any, _: object) -> Iterable[Answer[ConfigResource, None]]:
            for r in response.responses:
                where = ConfigResource(resource_kind(r.resource_type), r.resource_name)
                yield where, r.error_code and resource_error(r.error_code, r.error_message, *where), None

        outcome = await job.each(
            wanted,
            lambda where: _of_one_broker(where) or CONTROLLER,
            lambda asked: alter_request({where: wanted[where] for where in asked}, validate_only=validate_only),
            answers,
            again=controller_moves,
        )
        outcome.result()

    async def list_config_resources(
        self, kinds: Iterable[str] = (), *, timeout: float | None = None
    ) -> list[ConfigResource]:
        """Everything of these kinds (none: of all) that has settings, sorted."""
        request = list_request([kinds] if isinstance(kinds, str) else kinds)
        job = self._job("list_config_resources", timeout)
        response = await job.ask(request, ANY, check=lambda r: r.error_code)
        return sorted(
            ConfigResource(resource_kind(r.resource_type), r.resource_name) for r in response.config_resources
        )

    async def _check_brokers(self, job: Job, resources: Collection[ConfigResource]) -> None:
        """A broker's own settings are known to that broker alone. Raises UsageError for one that is not there."""
        own = [node for node in map(_of_one_broker, resources) if isinstance(node, Node)]
        if own:
            await self._brokers(job, [node.node_id for node in own])


def _resources(resources: Iterable[tuple[str, str]]) -> list[ConfigResource]:
    """Each once."""
    return list(dict.fromkeys(ConfigResource(*resource) for resource in resources))


def _of_one_broker(resource: ConfigResource) -> Target | None:
    if resource.kind not in ("broker", "broker-logger") or not resource.name:
        return None
    return Node(int(resource.name))
