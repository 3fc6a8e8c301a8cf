"""Operations on the cluster: its brokers and its features."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.admin.operations import AdminOperations, controller_moves
from barnabas.connection.cluster import Broker, brokers_of
from barnabas.connection.network_client import ANY, CONTROLLER
from barnabas.connection.retry import Answer, RequestBuilder
from barnabas.errors import KafkaError, UnsupportedVersion, error_for
from barnabas.types import BrokerId

__all__ = [
    "ClusterDescription",
    "ClusterOperations",
    "FeatureLevels",
    "FeatureUpdate",
    "Features",
    "LeaderChange",
]


class ClusterDescription(NamedTuple):
    """The brokers by node id, the controller's node id (-1: none), and which of the brokers are fenced: only
    `include_fenced` shows these. `epochs` are those of the brokers' registrations: a process that starts has another
    one than that before. Barnabas's brokers tell them in a tagged field of their own; others are left out."""

    cluster_id: str | None
    controller_id: BrokerId
    brokers: dict[int, Broker]
    fenced: frozenset[int] = frozenset()
    epochs: Mapping[int, int] = {}


class LeaderChange(NamedTuple):
    """A partition got another leader, or the same one in a new leader epoch; a leader is -1 if there is none.

    `took_ms` is the time from the event, as the controller was told of it, to the election. `noticed_after_ms` is the
    time before that for which nothing was heard of the former leader's broker, as in a session that timed out.
    """

    time_ms: int
    topic: str
    partition: int
    from_leader: int
    to_leader: int
    leader_epoch: int
    reason: str
    took_ms: int
    noticed_after_ms: int = 0


class FeatureLevels(NamedTuple):
    """The range of a feature's levels, both ends inclusive."""

    min_level: int
    max_level: int


class Features(NamedTuple):
    """The feature levels that the cluster has agreed on (`finalized`, as of `epoch`, -1 for none), and those that one
    broker supports."""

    epoch: int
    finalized: dict[str, FeatureLevels]
    supported: dict[str, FeatureLevels]


class FeatureUpdate(NamedTuple):
    """The level that a feature is to get; 0 disables it. Only a `downgrade` may lower it, and only an `unsafe` one if
    the metadata would lose something by that."""

    level: int
    downgrade: bool = False
    unsafe: bool = False


class ClusterOperations(AdminOperations):
    async def describe_cluster(
        self, *, include_fenced: bool = False, timeout: float | None = None
    ) -> ClusterDescription:
        """Returns the cluster's id, its live brokers and its controller; with `include_fenced` also the brokers that
        have stopped or are not heard of, which Kafka tells from 4.0 on."""
        from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
        from barnabas.protocol.messages.metadata import MetadataRequest

        driver = self._driver("describe_cluster", timeout)
        try:
            request = DescribeClusterRequest(include_fenced_brokers=include_fenced)
            response = await driver.send(request, ANY, lambda r: r.error_code)
        except UnsupportedVersion:  # before Kafka 2.8
            response = await driver.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), ANY)
            return ClusterDescription(response.cluster_id, response.controller_id, brokers_of(response.brokers))
        brokers = {b.broker_id: Broker(b.broker_id, b.host, b.port, b.rack) for b in response.brokers}
        fenced = frozenset(b.broker_id for b in response.brokers if b.is_fenced)
        epochs = {b.broker_id: b.broker_epoch for b in response.brokers if b.broker_epoch}
        return ClusterDescription(response.cluster_id, response.controller_id, brokers, fenced, epochs)

    async def broker_releases(self, *, timeout: float | None = None) -> dict[int, str]:
        """Returns the release of each live broker, by its node id. Barnabas's brokers tell it in a tagged field of
        their own; others are left out. Raises ItemsFailed, by broker."""
        from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest

        def answers(response: Any, asked: list[BrokerId]) -> Iterable[Answer[BrokerId, str | None]]:
            yield asked[0], response.error_code, response.release

        request, driver = DescribeClusterRequest(), self._driver("broker_releases", timeout)
        try:
            found = await self._at_brokers(driver, None, lambda _: request, answers)
        except UnsupportedVersion:  # before Kafka 2.8
            return {}
        return {node_id: release for node_id, release in found.items() if release is not None}

    async def leader_changes(self, limit: int = 10_000, *, timeout: float | None = None) -> list[LeaderChange] | None:
        """Returns the last changes of partitions' leaders, oldest first. Barnabas's brokers keep ten thousand of
        them, a thousand with ZooKeeper, and send these in a tagged field of their own; None from other brokers."""
        from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest

        request = DescribeClusterRequest(leader_changes_max=limit)
        response = await self._driver("leader_changes", timeout).send(request, ANY, lambda r: r.error_code)
        return _leader_changes(response.leader_changes)

    async def unregister_broker(self, broker_id: int, *, timeout: float | None = None) -> None:
        """Removes the registration of a broker that has stopped and is not to come back. Its replicas are to be
        reassigned. Raises BrokerIdNotRegistered, InvalidRequest for a live broker, and the errors of any request."""
        from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest

        def error(response: Any) -> KafkaError | None:
            return error_for(response.error_code, response.error_message or "") if response.error_code else None

        request = UnregisterBrokerRequest(broker_id=broker_id)
        driver = self._driver("unregister_broker", timeout, changes=True)
        await driver.send(request, CONTROLLER, error, is_retriable=controller_moves)

    async def describe_features(self, *, timeout: float | None = None) -> Features:
        """Returns the levels of features such as `transaction.version`; empty where the brokers are older than
        features."""
        from barnabas.protocol.messages.api_versions import ApiVersionsRequest
        from barnabas.version import __version__

        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        response = await self._driver("describe_features", timeout).send(request, ANY, lambda r: r.error_code)
        return Features(
            response.finalized_features_epoch,
            {f.name: FeatureLevels(f.min_version_level, f.max_version_level) for f in response.finalized_features},
            {f.name: FeatureLevels(f.min_version, f.max_version) for f in response.supported_features},
        )

    async def update_features(
        self,
        updates: Mapping[str, int | FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Gives features other levels, all of them or none. Barnabas's brokers accept the level that a feature has
        alone: others come with a release. Raises InvalidUpdateVersion, and the errors of any request."""
        from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

        def key(name: str, update: int | FeatureUpdate) -> FeatureUpdateKey:
            level, downgrade, unsafe = update if isinstance(update, FeatureUpdate) else FeatureUpdate(update)
            return FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=3 if unsafe else 2 if downgrade else 1
            )

        def error(response: Any) -> KafkaError | None:
            if response.error_code:
                return error_for(response.error_code, response.error_message or "")
            return next(
                (error_for(r.error_code, r.error_message or "") for r in response.results if r.error_code), None
            )

        request = UpdateFeaturesRequest(
            feature_updates=[key(name, update) for name, update in updates.items()], validate_only=validate_only
        )
        driver = self._driver("update_features", timeout, changes=True)
        await driver.send(RequestBuilder(request, at_least=1), CONTROLLER, error, is_retriable=controller_moves)


def _leader_changes(text: bytes | None) -> list[LeaderChange] | None:
    if text is None:
        return None
    import json

    try:
        return [
            LeaderChange(**{name: row[name] for name in LeaderChange._fields if name in row})
            for row in json.loads(text)
        ]
    except (ValueError, TypeError, KeyError):
        return None  # the tag means something else to this broker
