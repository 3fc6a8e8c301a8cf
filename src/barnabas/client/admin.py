"""Typed calls for the administrative APIs: topics, partitions, records, configs, brokers, log directories, groups.

Each call finds the broker that must answer (controller, leader, coordinator), retries what passes with fresh
metadata, and returns plain tuples. An item that fails is a KafkaError: raised where one thing was asked for, a value
in the returned dictionary where many were. Calls about groups are in `group_admin`, about transactions in
`transaction_admin`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from barnabas.client.cluster import Cluster
from barnabas.client.core.admin.configs import (
    RESOURCE_TYPES,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    alter_request,
    config_entry,
    describe_request,
    list_request,
    resource_error,
    resource_kind,
    resource_type,
)
from barnabas.client.core.admin.storage import LogDir, LogDirReplica, log_dir, log_dirs_request
from barnabas.client.core.admin.topics import (
    CreatedTopic,
    NewTopic,
    create_partitions_request,
    create_topics_request,
    created_topic,
    delete_topics_request,
    elect_leaders_request,
    election_answers,
    topic_error,
)
from barnabas.client.core.views import ClusterView, TopicView
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.offsets import OffsetsAdmin
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.errors import KafkaError, UsageError, error_for
from barnabas.protocol.schema import Request
from barnabas.types import TopicPartition

__all__ = ["RESOURCE_TYPES", "Admin", "ConfigEntry", "CreatedTopic", "LogDir", "LogDirReplica", "NewTopic"]


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
            found[name] = topic_error(code, None, name) if topic is None or code else topic
        return found

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        request = create_topics_request(topics, validate_only=validate_only, timeout_ms=self._timeout_ms)
        response = self._call_controller(request, lambda r: [t.error_code for t in r.topics])
        return {
            t.name: error_for(t.error_code, t.error_message or "") if t.error_code else created_topic(t)
            for t in response.topics
        }

    def delete_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        request = delete_topics_request(names, timeout_ms=self._timeout_ms)
        response = self._call_controller(request, lambda r: [t.error_code for t in r.responses])
        self.cluster.forget(names)
        return {t.name: _error_or_none(t.error_code, t.error_message, t.name) for t in response.responses}

    def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Grow topics to so many partitions in total."""
        request = create_partitions_request(counts, timeout_ms=self._timeout_ms, validate_only=validate_only)
        response = self._call_controller(request, lambda r: [t.error_code for t in r.results])
        self.cluster.forget(counts)
        return {t.name: _error_or_none(t.error_code, t.error_message, t.name) for t in response.results}

    def elect_leaders(
        self, partitions: Collection[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Make preferred (or, unclean, any live) replicas leaders; None: of all partitions."""
        request = elect_leaders_request(partitions, unclean=unclean, timeout_ms=self._timeout_ms)
        response = self._call_controller(request, lambda r: [r.error_code])
        if response.error_code:
            raise error_for(response.error_code)
        return {
            where: _error_or_none(code, message, where.topic) for where, code, message in election_answers(response)
        }

    # --- configs ----------------------------------------------------------------------------------------------------

    def describe_configs(
        self, kind: str, name: str, keys: Sequence[str] | None = None, *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """The settings of a `topic`, `broker` (name: node id, empty for the cluster-wide ones) or `group`."""
        request = describe_request([ConfigResource(kind, name)], keys, documentation=documentation)
        node_id = self._node(kind, name)
        response = self._retrying(lambda deadline: self.cluster.call(request, deadline=deadline, node_id=node_id))
        result = response.results[0]
        if result.error_code:
            raise resource_error(result.error_code, result.error_message, kind, name)
        return [config_entry(config) for config in result.configs]

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
        changes = [ConfigChange(key, value) for key, value in set_values.items()]
        changes += [ConfigChange(key, None, "delete") for key in delete]
        changes += [ConfigChange(key, value, "append") for key, value in append.items()]
        changes += [ConfigChange(key, value, "subtract") for key, value in subtract.items()]
        request = alter_request({ConfigResource(kind, name): changes}, validate_only=validate_only)
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
            raise resource_error(result.error_code, result.error_message, kind, name)

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
        request = list_request(kinds)
        response = self._retrying(lambda deadline: self.cluster.call(request, deadline=deadline))
        if response.error_code:
            raise error_for(response.error_code)
        return [(resource_kind(r.resource_type), r.resource_name) for r in response.config_resources]

    # --- storage ----------------------------------------------------------------------------------------------------

    def describe_log_dirs(self, broker_ids: Collection[int] | None = None) -> list[LogDir]:
        """Log directories of these brokers (None: all) with the replicas in them."""
        brokers = self.describe_cluster().brokers if broker_ids is None else broker_ids
        found = []
        for node_id in sorted(brokers):
            response = self._on_node(log_dirs_request(None), node_id)
            found += [log_dir(node_id, result) for result in response.results]
        return found


def _error_or_none(code: int, message: str | None, topic: str) -> KafkaError | None:
    return topic_error(code, message, topic) if code else None
