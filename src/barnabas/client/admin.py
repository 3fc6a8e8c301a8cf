"""Typed calls for the administrative APIs: topics, partitions, records, configs, brokers, log directories, groups.

Each call finds the broker that must answer (controller, leader, coordinator), retries what passes with fresh
metadata, and returns plain tuples. An item that fails is a KafkaError: raised where one thing was asked for, a value
in the returned dictionary where many were. Calls about groups are in `group_admin`, about transactions in
`transaction_admin`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.core.offset_messages import by_topic
from barnabas.client.core.views import ClusterView, TopicView
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.offsets import OffsetsAdmin
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.errors import KafkaError, UsageError, error_for
from barnabas.protocol.schema import Request
from barnabas.types import TopicPartition

__all__ = ["Admin", "ConfigEntry", "CreatedTopic", "LogDir", "LogDirReplica", "NewTopic"]

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32
RESOURCE_TYPES: Final = {"topic": TOPIC, "broker": BROKER, "broker-logger": 8, "client-metrics": 16, "group": GROUP}
CONFIG_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
CONFIG_TYPES: Final = (
    "UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD",
)  # fmt: skip


class NewTopic(NamedTuple):
    """A topic to be made; -1 leaves the choice to the broker."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class CreatedTopic(NamedTuple):
    """What the broker made; -1 where it is too old to say."""

    name: str
    partitions: int
    replication_factor: int


class ConfigEntry(NamedTuple):
    """One setting of a topic or broker as DescribeConfigs shows it."""

    name: str
    value: str | None
    source: str
    type: str
    read_only: bool
    sensitive: bool
    documentation: str | None
    synonyms: tuple[tuple[str, str | None, str], ...]
    """(name, value, source), the first one is in force."""


class LogDirReplica(NamedTuple):
    """One replica's space on disk, in bytes.

    `compaction` of a compacted log, as our brokers tell it in a tagged field of their own: cleaned_offset, dirty_bytes,
    dirty_ratio, last_cleaned_ms, uncleanable (why, if it is), ... None from other brokers.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    compaction: dict[str, Any] | None = None


class LogDir(NamedTuple):
    """One log directory of a broker; -1 where the broker does not say."""

    broker_id: int
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    replicas: tuple[LogDirReplica, ...]


class Admin(OffsetsAdmin, GroupAdmin, TransactionAdmin):
    """Administrative calls on a cluster. `Admin.connect("host:9092")` or with a Cluster of your own."""

    @classmethod
    def connect(
        cls, bootstrap: str | Iterable[str], *, timeout_s: float = 30.0, client_id: str = "barnabas"
    ) -> "Admin":
        return cls(Cluster(bootstrap, timeout_s=timeout_s, client_id=client_id))

    def close(self) -> None:
        self.cluster.close()

    def __enter__(self) -> "Admin":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- topics -----------------------------------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterView:
        """Brokers and controller, no topics."""
        return self._retrying(lambda deadline: self.cluster.refresh((), deadline=deadline))

    def list_topics(self, *, internal: bool = False) -> list[TopicView]:
        """All topics, sorted by name."""
        view = self._retrying(lambda deadline: self.cluster.refresh(None, deadline=deadline))
        return sorted((t for t in view.topics.values() if internal or not t.is_internal), key=lambda t: t.name)

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicView | KafkaError]:
        """Each topic's view, or why there is none."""
        view = self._retrying(lambda deadline: self.cluster.refresh(names, deadline=deadline))
        found: dict[str, TopicView | KafkaError] = {}
        for name in names:
            topic = view.topics.get(name)
            code = 3 if topic is None else topic.error_code
            found[name] = _unknown_topic(name, code) if topic is None or code else topic
        return found

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        from barnabas.protocol.messages.create_topics import (
            CreatableTopic,
            CreatableTopicConfig,
            CreateTopicsRequest,
        )

        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[CreatableTopicConfig(name=n, value=v) for n, v in topic.configs.items()],
                )
                for topic in topics
            ],
            validate_only=validate_only,
            timeout_ms=self._timeout_ms,
        )
        response = self._call_controller(request, lambda r: [t.error_code for t in r.topics])
        return {
            t.name: error_for(t.error_code, t.error_message or "")
            if t.error_code
            else CreatedTopic(t.name, t.num_partitions, t.replication_factor)
            for t in response.topics
        }

    def delete_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names], topic_names=names, timeout_ms=self._timeout_ms
        )
        response = self._call_controller(request, lambda r: [t.error_code for t in r.responses])
        self.cluster.forget(names)
        return {t.name: _error_or_none(t.error_code, t.error_message, t.name) for t in response.responses}

    def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Grow topics to so many partitions in total."""
        from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

        topics = [CreatePartitionsTopic(name=name, count=count) for name, count in counts.items()]
        for topic in topics:
            topic.assignments = None  # null: the broker places them
        request = CreatePartitionsRequest(topics=topics, timeout_ms=self._timeout_ms, validate_only=validate_only)
        response = self._call_controller(request, lambda r: [t.error_code for t in r.results])
        self.cluster.forget(counts)
        return {t.name: _error_or_none(t.error_code, t.error_message, t.name) for t in response.results}

    def elect_leaders(
        self, partitions: Collection[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Make preferred (or, unclean, any live) replicas leaders; None: of all partitions."""
        from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

        request = ElectLeadersRequest(election_type=int(unclean), timeout_ms=self._timeout_ms)
        chosen = None if partitions is None else by_topic(partitions)
        request.topic_partitions = (
            None if chosen is None else [TopicPartitions(topic=t, partitions=ps) for t, ps in chosen.items()]
        )
        response = self._call_controller(request, lambda r: [r.error_code])
        if response.error_code:
            raise error_for(response.error_code)
        return {
            TopicPartition(topic.topic, p.partition_id): _error_or_none(p.error_code, p.error_message, topic.topic)
            for topic in response.replica_election_results
            for p in topic.partition_result
        }

    # --- configs ----------------------------------------------------------------------------------------------------

    def describe_configs(
        self, kind: str, name: str, keys: Sequence[str] | None = None, *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """The settings of a `topic`, `broker` (name: node id, empty for the cluster-wide ones) or `group`."""
        from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

        resource = DescribeConfigsResource(resource_type=resource_type(kind), resource_name=name)
        resource.configuration_keys = keys
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=documentation
        )
        node_id = self._node(kind, name)
        response = self._retrying(lambda deadline: self.cluster.call(request, deadline=deadline, node_id=node_id))
        result = response.results[0]
        if result.error_code:
            raise _resource_error(result.error_code, result.error_message, kind, name)
        return [_config_entry(config) for config in result.configs]

    def alter_configs(
        self,
        kind: str,
        name: str,
        *,
        set_values: Mapping[str, str] = {},
        delete: Sequence[str] = (),
        append: Mapping[str, str] = {},
        subtract: Mapping[str, str] = {},
        validate_only: bool = False,
    ) -> None:
        """IncrementalAlterConfigs: only the named settings change. `append` and `subtract` are for lists."""
        from barnabas.protocol.messages.incremental_alter_configs import (
            AlterableConfig,
            AlterConfigsResource,
            IncrementalAlterConfigsRequest,
        )

        changes: list[tuple[str, int, str | None]] = [(key, 0, value) for key, value in set_values.items()]
        changes += [(key, 1, None) for key in delete]
        changes += [(key, 2, value) for key, value in append.items()]
        changes += [(key, 3, value) for key, value in subtract.items()]
        configs = []
        for key, operation, value in changes:
            config = AlterableConfig(name=key, config_operation=operation)
            config.value = value
            configs.append(config)
        resource = AlterConfigsResource(resource_type=resource_type(kind), resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        self._alter(request, kind, name)

    def replace_configs(self, kind: str, name: str, values: Mapping[str, str], *, validate_only: bool = False) -> None:
        """AlterConfigs: settings that are not in `values` go back to their defaults."""
        from barnabas.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource

        configs = [AlterableConfig(name=key, value=value) for key, value in values.items()]
        resource = AlterConfigsResource(resource_type=resource_type(kind), resource_name=name, configs=configs)
        self._alter(AlterConfigsRequest(resources=[resource], validate_only=validate_only), kind, name)

    def _alter(self, request: Request, kind: str, name: str) -> None:
        node_id = self._node(kind, name)
        if node_id is None:
            response = self._call_controller(request, lambda r: [x.error_code for x in r.responses])
        else:
            response = self._retrying(lambda deadline: self.cluster.call(request, deadline=deadline, node_id=node_id))
        result = response.responses[0]
        if result.error_code:
            raise _resource_error(result.error_code, result.error_message, kind, name)

    def _node(self, kind: str, name: str) -> int | None:
        """A broker's own settings are known to that broker alone. Raises UsageError for one that is not there."""
        if kind not in ("broker", "broker-logger") or not name:
            return None
        brokers = self.describe_cluster().brokers
        if not name.isdigit() or int(name) not in brokers:
            known = ", ".join(map(str, sorted(brokers)))
            raise UsageError(f"broker {name!r} is not in the cluster; its brokers are {known}")
        return int(name)

    def list_config_resources(self, kinds: Sequence[str] = ()) -> list[tuple[str, str]]:
        """(kind, name) of everything that has settings."""
        from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest

        request = ListConfigResourcesRequest(resource_types=[resource_type(kind) for kind in kinds])
        response = self._retrying(lambda deadline: self.cluster.call(request, deadline=deadline))
        if response.error_code:
            raise error_for(response.error_code)
        names = {number: kind for kind, number in RESOURCE_TYPES.items()}
        return [(names.get(r.resource_type, str(r.resource_type)), r.resource_name) for r in response.config_resources]

    # --- storage ----------------------------------------------------------------------------------------------------

    def describe_log_dirs(self, broker_ids: Collection[int] | None = None) -> list[LogDir]:
        """Log directories of these brokers (None: all) with the replicas in them."""
        from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

        brokers = self.describe_cluster().brokers if broker_ids is None else broker_ids
        found = []
        for node_id in sorted(brokers):
            request = DescribeLogDirsRequest()
            request.topics = None  # null: every topic
            response = self._on_node(request, node_id)
            found += [_log_dir(node_id, result) for result in response.results]
        return found


def resource_type(kind: str) -> int:
    """`resource_type("topic")` is 2. Raises UsageError."""
    if kind not in RESOURCE_TYPES:
        raise UsageError(f"{kind!r} has no settings; use one of {', '.join(RESOURCE_TYPES)}")
    return RESOURCE_TYPES[kind]


def _unknown_topic(name: str, code: int) -> KafkaError:
    return error_for(code, f"topic {name!r} does not exist" if code == 3 else f"topic {name!r}: {error_for(code)}")


def _error_or_none(code: int, message: str | None, topic: str) -> KafkaError | None:
    if not code:
        return None
    return _unknown_topic(topic, code) if code == 3 else error_for(code, message or "")


def _resource_error(code: int, message: str | None, kind: str, name: str) -> KafkaError:
    if code == 3:
        return _unknown_topic(name, code)
    return error_for(code, message or f"{kind} {name!r}: {error_for(code)}")


def _config_entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        CONFIG_SOURCES.get(config.config_source, str(config.config_source)),
        CONFIG_TYPES[config.config_type] if 0 <= config.config_type < len(CONFIG_TYPES) else "UNKNOWN",
        config.read_only,
        config.is_sensitive,
        config.documentation,
        tuple((s.name, s.value, CONFIG_SOURCES.get(s.source, str(s.source))) for s in config.synonyms),
    )


def _log_dir(node_id: int, result: Any) -> LogDir:
    replicas = tuple(
        LogDirReplica(topic.name, p.partition_index, p.partition_size, p.offset_lag, _compaction(p.compaction))
        for topic in result.topics
        for p in topic.partitions
    )
    return LogDir(node_id, result.log_dir, result.error_code, result.total_bytes, result.usable_bytes, replicas)


def _compaction(text: str | None) -> dict[str, Any] | None:
    if not text:
        return None
    import json

    try:
        found = json.loads(text)
    except ValueError:
        return None  # another meaning of the tag, by another broker
    return found if isinstance(found, dict) else None
