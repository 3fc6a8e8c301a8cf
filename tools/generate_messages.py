"""Writes src/barnabas/protocol/messages/ from the schemas that the kio package ships.

kio has one dataclass per API *version*; ours is one class per API with the union of the versions' fields. Versions
newer than kio stand in NEW_VERSIONS. Run after an upgrade of kio: `python tools/generate_messages.py`. A test
regenerates and compares.
"""

import datetime
import sys
import types
import typing
import uuid
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from kio.index import load_entity_module, schema_name_map
from kio.static.constants import EntityType

OUT = Path(__file__).parent.parent / "src/barnabas/protocol/messages"

APIS = [
    "produce", "fetch", "list_offsets", "metadata", "offset_commit", "offset_fetch", "find_coordinator", "join_group",
    "heartbeat", "leave_group", "sync_group", "describe_groups", "list_groups", "sasl_handshake", "api_versions",
    "create_topics", "delete_topics", "delete_records", "init_producer_id", "offset_for_leader_epoch",
    "add_partitions_to_txn", "add_offsets_to_txn", "end_txn", "write_txn_markers", "txn_offset_commit",
    "describe_acls", "create_acls", "delete_acls",
    "describe_configs", "alter_configs", "alter_replica_log_dirs", "describe_log_dirs", "sasl_authenticate",
    "create_partitions", "delete_groups",
    "elect_leaders", "incremental_alter_configs", "alter_partition_reassignments", "list_partition_reassignments",
    "offset_delete", "unregister_broker", "update_features",
    "envelope", "broker_heartbeat", "alter_partition", "describe_cluster", "describe_producers",
    "describe_transactions", "list_transactions", "describe_topic_partitions", "list_config_resources",
]  # fmt: skip
EXTENSIONS = [
    # The reasons of a group's rebalances, as JSON: Kafka has no field for them. Only our own clients get it.
    ("describe_groups", "DescribedGroup", "rebalances", "string", range(5, 7), 10_000),
    # The progress of a compacted log's cleaning, as JSON, for the same reason and in the same way.
    ("describe_log_dirs", "DescribeLogDirsPartition", "compaction", "string", range(2, 6), 10_000),
    # The disk of a log directory, as a name that brokers of one machine have in common. Only our own clients get it.
    ("describe_log_dirs", "DescribeLogDirsResult", "device", "string", range(2, 6), 10_000),
    # What cannot be read of a log that is damaged.
    ("describe_log_dirs", "DescribeLogDirsPartition", "damage", "string", range(2, 6), 10_001),
    # The last changes of leaders, as JSON, at most as many as the request asks for. A string would be cut at 32 KiB.
    ("describe_cluster", "DescribeClusterRequest", "leader_changes_max", "int32", range(3), 10_000),
    ("describe_cluster", "DescribeClusterResponse", "leader_changes", "bytes", range(3), 10_000),
    # The other brokers that do not answer this one within the time that the request gives them, as JSON.
    ("describe_cluster", "DescribeClusterRequest", "unreached_peers_wait_ms", "int32", range(3), 10_001),
    ("describe_cluster", "DescribeClusterResponse", "unreached_peers", "string", range(3), 10_001),
    # The brokers that this one has refused, as they are none of the cluster, as JSON. They come with those not reached.
    ("describe_cluster", "DescribeClusterResponse", "refused_brokers", "bytes", range(3), 10_006),
    # All data directories of the broker are cordoned: it takes no new replicas.
    ("broker_heartbeat", "BrokerHeartbeatRequest", "takes_no_replicas", "bool", range(3), 10_000),
    # Why brokers that start would not find the registry. It comes with the changes of leaders.
    ("describe_cluster", "DescribeClusterResponse", "registry_loss", "string", range(3), 10_002),
    # The free bytes and the size of the disk under the registry. They come with the changes of leaders.
    ("describe_cluster", "DescribeClusterResponse", "registry_usable_bytes", "int64", range(3), 10_004),
    ("describe_cluster", "DescribeClusterResponse", "registry_total_bytes", "int64", range(3), 10_005),
    # The release of the broker that responds. Only our own clients get it.
    ("describe_cluster", "DescribeClusterResponse", "release", "string", range(3), 10_003),
    # The epoch of a broker's registration, which tells a process from the one before. Only our own clients get it.
    ("describe_cluster", "DescribeClusterBroker", "broker_epoch", "int64", range(3), 10_000),
]
"""Tagged fields of our own: API, struct, name, kind, versions, tag. Other clients skip tags unknown to them."""


class NewVersion(NamedTuple):
    """A version of an API that kio does not have yet."""

    version: int
    added: tuple[tuple[str, str, str, str, Any], ...]
    """Fields that begin with it: struct, name, kind, the field before it, default. Those of None are nullable."""
    removed: tuple[tuple[str, str], ...] = ()
    """Fields that end before it: struct, name."""


NEW_VERSIONS = {
    "api_versions": NewVersion(
        5,  # KIP-1242
        (
            ("ApiVersionsRequest", "cluster_id", "string", "client_software_version", None),
            ("ApiVersionsRequest", "node_id", "int32", "cluster_id", -1),
        ),
    ),
    "txn_offset_commit": NewVersion(
        6,  # KIP-1319
        (
            ("TxnOffsetCommitRequestTopic", "topic_id", "uuid", "name", None),
            ("TxnOffsetCommitResponseTopic", "topic_id", "uuid", "name", None),
        ),
        (("TxnOffsetCommitRequestTopic", "name"), ("TxnOffsetCommitResponseTopic", "name")),
    ),
    "delete_groups": NewVersion(3, (("DeletableGroupResult", "error_message", "string", "error_code", None),)),
}
"""The versions that Kafka 4.4.0 has beyond kio's schemas. An entry goes when kio has it."""
DATA = ["consumer_protocol_subscription", "consumer_protocol_assignment", "default_principal_data"]

HEADER = (
    '"""Generated by tools/generate_messages.py from Kafka\'s message schemas (as kio ships them). Do not edit."""\n'
)
PYTHON_TYPES = {
    "int8": "int", "int16": "int", "int32": "int", "int64": "int", "uint16": "int", "uint32": "int",
    "float64": "float", "bool": "bool",
    "string": "str", "bytes": "bytes", "records": "bytes", "uuid": "UUID",
}  # fmt: skip
RENAMED_KINDS = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
# kio cuts the unit off a name; ours ends in it, as Kafka's does.
UNIT_MISSING = ("timedelta_i32", "timedelta_i64", "datetime_i64")
ZERO = {"int": 0, "float": 0.0, "bool": False, "str": "", "bytes": b"", "UUID": None}


@dataclass
class Attribute:
    name: str
    kind: str
    array: bool
    struct: bool
    versions: list[int] = field(default_factory=list)
    nullable: list[int] = field(default_factory=list)
    tag: int = -1
    default: Any = None
    tag_versions: list[int] = field(default_factory=list)


@dataclass
class Struct:
    name: str
    attributes: dict[str, Attribute] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)


def unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    """(inner type, is array, is nullable) of a kio annotation."""
    nullable = array = False
    while True:
        origin = get_origin(annotation)
        if origin in (types.UnionType, typing.Union):
            nullable = True
            annotation = next(a for a in get_args(annotation) if a is not type(None))
        elif origin is tuple:
            array = True
            annotation = get_args(annotation)[0]
        else:
            return annotation, array, nullable


def plain(value: Any) -> Any:
    """kio's default values as ours."""
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return None
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    return value


class Collector:
    def __init__(self) -> None:
        self.structs: dict[str, Struct] = {}
        self.flexible: dict[int, bool] = {}

    def add(self, cls: type, version: int, prefix: str = "") -> str:
        name = self.rename(cls.__name__)
        struct = self.structs.setdefault(name, Struct(name))
        previous: str | None = None
        for item in fields(cls):
            previous = self.add_field(struct, item, version, previous)
        return name

    def rename(self, name: str) -> str:
        return name

    def add_field(self, struct: Struct, item: Any, version: int, previous: str | None) -> str:
        inner, array, nullable = unwrap(item.type)
        kafka_type = item.metadata.get("kafka_type")
        is_struct = is_dataclass(inner)
        kind = self.add(inner, version) if is_struct else RENAMED_KINDS.get(kafka_type, kafka_type)
        name = item.name + ("_ms" if kafka_type in UNIT_MISSING else "")
        attribute = struct.attributes.get(name)
        if attribute is None:
            attribute = struct.attributes[name] = Attribute(name, kind, array, is_struct)
            struct.order.insert(struct.order.index(previous) + 1 if previous else 0, name)
        assert (attribute.kind, attribute.array) == (kind, array), (struct.name, name, kind, attribute)
        attribute.versions.append(version)
        if nullable and kafka_type not in ("uuid", "datetime_i64"):
            attribute.nullable.append(version)
        if "tag" in item.metadata:
            attribute.tag = item.metadata["tag"]
            attribute.tag_versions.append(version)
        if item.default is not MISSING:
            attribute.default = () if array and item.default is not None else plain(item.default)
            if kafka_type == "datetime_i64":
                attribute.default = -1 if item.default is None else plain(item.default)
        elif not array and not is_struct:
            attribute.default = ZERO[PYTHON_TYPES[kind]]
        elif array:
            attribute.default = ()
        return name


def annotation(attribute: Attribute) -> str:
    inner = attribute.kind if attribute.struct else PYTHON_TYPES[attribute.kind]
    if attribute.array:
        inner = f"Sequence[{inner}]"
    return f"{inner} | None" if attribute.nullable else inner


def render_class(struct: Struct, base: str, extra: list[str]) -> str:
    lines = [f"    {line}" for line in extra]
    for a in (struct.attributes[name] for name in struct.order):
        low, high = min(a.versions), max(a.versions)
        assert sorted(set(a.versions)) == list(range(low, high + 1)), (struct.name, a.name, a.versions)
        assert not a.tag_versions or sorted(a.tag_versions) == sorted(a.versions), (struct.name, a.name)
        kind = a.kind if a.struct else f'"{a.kind}"'
        options = f"default={'ZERO_UUID' if a.kind == 'uuid' and not a.array else repr(a.default)}"
        if a.array:
            options += ", array=True"
        if a.nullable:
            options += f", nullable_from={min(a.nullable)}"
        if a.tag >= 0:
            options += f", tag={a.tag}"
        lines.append(f"    {a.name}: {annotation(a)} = field({kind}, {low}, {high}, {options})")
    return "\n".join([f"class {struct.name}({base}):", *(lines or ["    pass"])])


def add_version(collector: Collector, new: NewVersion, flexible: dict[int, bool]) -> None:
    """Adds a version that kio does not have to the structs of a message."""
    assert new.version == max(flexible) + 1, f"kio has version {new.version}"
    flexible[new.version] = flexible[new.version - 1]
    for struct in collector.structs.values():
        for attribute in struct.attributes.values():
            if new.version - 1 in attribute.versions and (struct.name, attribute.name) not in new.removed:
                for versions in (attribute.versions, attribute.nullable, attribute.tag_versions):
                    if new.version - 1 in versions:
                        versions.append(new.version)
    for struct_name, name, kind, previous, default in new.added:
        if struct_name in collector.structs:
            struct = collector.structs[struct_name]
            nullable = [new.version] if default is None and kind != "uuid" else []
            struct.attributes[name] = Attribute(name, kind, False, False, [new.version], nullable, default=default)
            struct.order.insert(struct.order.index(previous) + 1, name)


def collect(name: str, kind: EntityType) -> tuple[Collector, str, dict[int, bool], int]:
    collector = Collector()
    flexible: dict[int, bool] = {}
    root, key = "", -1
    for version in sorted(v for v, paths in schema_name_map[name].items() if kind in paths):
        path = schema_name_map[name][version][kind]
        module = load_entity_module(name, version, kind)
        cls = getattr(module, path.split(":")[1])
        root = collector.add(cls, version)
        flexible[version] = cls.__flexible__
        key = getattr(cls, "__api_key__", -1)
    if name in NEW_VERSIONS:
        add_version(collector, NEW_VERSIONS[name], flexible)
    for api, struct_name, field_name, field_kind, versions, tag in EXTENSIONS:
        if api == name and struct_name in collector.structs:
            struct = collector.structs[struct_name]
            present = list(versions)
            nullable, default = (
                (present, None) if field_kind in ("string", "bytes") else ([], field_kind != "bool" and 0)
            )
            struct.attributes[field_name] = Attribute(
                field_name, field_kind, False, False, present, nullable, tag, default, list(present)
            )
            struct.order.append(field_name)
    return collector, root, flexible, key


class Root(NamedTuple):
    """What the outermost class of a message says beyond its fields."""

    name: str
    base: str
    lines: list[str]


def root_of(name: str, kind: EntityType, flexible: dict[int, bool], key: int) -> Root:
    lines = [f"API_KEY = {key}"] if key >= 0 and kind is not EntityType.data else []
    first_flexible = next((v for v, f in sorted(flexible.items()) if f), None)
    if first_flexible is not None:
        lines.append(f"FLEXIBLE_FROM = {first_flexible}")
    lines += [f"FIRST_VERSION = {min(flexible)}", f"LAST_VERSION = {max(flexible)}"]
    return Root(name, {EntityType.request: "Request", EntityType.response: "Response"}.get(kind, "Message"), lines)


def emit(collector: Collector, struct: Struct, root: Root, body: list[str], done: set[str]) -> None:
    """Returns the classes in an order in which Python can define them: each class after those that it uses."""
    if struct.name in done:
        return
    done.add(struct.name)
    for attribute in struct.attributes.values():
        if attribute.struct:
            emit(collector, collector.structs[attribute.kind], root, body, done)
    is_root = struct.name == root.name
    body.append(render_class(struct, root.base if is_root else "Message", root.lines if is_root else []))


def render_module(name: str) -> str:
    kinds = [EntityType.data] if name in DATA else [EntityType.request, EntityType.response]
    collected = [collect(name, kind) for kind in kinds]
    if len(collected) == 2:
        shared = set(collected[0][0].structs) & set(collected[1][0].structs)
        for (collector, *_), prefix in zip(collected, ("Requested", "Described"), strict=True):
            for clash in shared:
                struct = collector.structs.pop(clash)
                struct.name = prefix + clash
                collector.structs[struct.name] = struct
                for other in collector.structs.values():
                    for a in other.attributes.values():
                        if a.kind == clash:
                            a.kind = struct.name
    body: list[str] = []
    for (collector, root, flexible, key), kind in zip(collected, kinds, strict=True):
        emit(collector, collector.structs[root], root_of(root, kind, flexible, key), body, set())
    text = "\n\n\n".join(body)
    head = [HEADER, "from __future__ import annotations", ""]
    if "Sequence[" in text:
        head.append("from collections.abc import Sequence")
    if "UUID" in text:
        head.append("from uuid import UUID")
    if head[-1] != "":
        head.append("")
    bases = [base for base in ("Message", "Request", "Response") if f"({base})" in text]
    head.append(f"from barnabas.protocol.schema import {', '.join([*bases, 'field'])}")
    head.append("")
    if "ZERO_UUID" in text:
        head += ["ZERO_UUID = UUID(int=0)", ""]
    return "\n".join(head) + "\n\n" + text + "\n"


def render_index() -> str:
    lines = [HEADER, "from typing import Final", "", "REQUESTS: Final = {"]
    for name in APIS:
        _, root, _, key = collect(name, EntityType.request)
        lines.append(
            f'    {key}: ("barnabas.protocol.messages.{name}", "{root}", "{collect(name, EntityType.response)[1]}"),'
        )
    return "\n".join([*lines, "}", '"""API key: module, request class, response class."""', ""])


def render_all() -> dict[str, str]:
    files = {f"{name}.py": render_module(name) for name in APIS + DATA}
    files["__init__.py"] = (
        '"""One module per API: request and response, each the union of all its versions. Generated."""\n'
    )
    files["index.py"] = render_index()
    return files


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    for name, text in render_all().items():
        (OUT / name).write_text(text)
    print(f"{len(APIS)} APIs written to {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
