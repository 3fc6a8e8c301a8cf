"""Requests about groups, one after the other, whose answers are compared between Apache Kafka and this broker.

A world has `connect(client_id)`, giving connections with `send` and `receive`, and `sleep(seconds)`. Every answer is
noted as text, with generated ids replaced by the order of their first appearance and lists sorted, because Kafka's
order is that of its hash maps. `ask_kafka_groups.py` plays the script against a broker on the wire and writes
`kafka_group_answers.txt`; `test_group_golden.py` plays it against the handlers on a virtual clock.
"""

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

from barnabas.protocol.apis import SERVED, ApiKey
from barnabas.protocol.schema import Message

SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\xff\xff\xff\xff"
GENERATED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
ZERO_ID = str(UUID(int=0))
UNKNOWN_TOPIC_ID = UUID(int=5)
GROUP_MAX_SIZE = 3
OFFSET_METADATA_MAX_BYTES = 100
"""The settings that the broker must run with, beside group.initial.rebalance.delay.ms=0."""


class Connection(Protocol):
    def send(self, api: ApiKey, version: int, fields: dict[str, Any]) -> None: ...

    def receive(self) -> Any: ...


class World(Protocol):
    def connect(self, client_id: str) -> Connection: ...

    def sleep(self, seconds: float) -> None: ...

    def topic_id(self, topic: str) -> UUID: ...


Request = tuple[ApiKey, int, dict[str, Any]]


def struct(module: str, name: str, /, **fields: Any) -> Any:
    return getattr(import_module(f"barnabas.protocol.messages.{module}"), name)(**fields)


# --- requests ---------------------------------------------------------------------------------------------------------


def join(
    group: str,
    version: int = 9,
    *,
    member: str = "",
    instance: str | None = None,
    protocols: dict[str, bytes] | None = None,
    kind: str = "consumer",
    session: int = 10_000,
    rebalance: int = 5_000,
) -> Request:
    wanted = {"range": SUBSCRIPTION} if protocols is None else protocols
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": session,
        "member_id": member,
        "protocol_type": kind,
        "protocols": [
            struct("join_group", "JoinGroupRequestProtocol", name=name, metadata=data) for name, data in wanted.items()
        ],
    }
    if version >= 1:
        fields["rebalance_timeout_ms"] = rebalance
    if version >= 5:
        fields["group_instance_id"] = instance
    return ApiKey.JOIN_GROUP, version, fields


def sync(
    group: str,
    generation: int,
    member: str,
    assignments: dict[str, bytes] | None = None,
    version: int = 5,
    *,
    kind: str | None = "consumer",
    protocol: str | None = "range",
    instance: str | None = None,
) -> Request:
    fields: dict[str, Any] = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "assignments": [
            struct("sync_group", "SyncGroupRequestAssignment", member_id=name, assignment=data)
            for name, data in (assignments or {}).items()
        ],
    }
    if version >= 3:
        fields["group_instance_id"] = instance
    if version >= 5:
        fields |= {"protocol_type": kind, "protocol_name": protocol}
    return ApiKey.SYNC_GROUP, version, fields


def heartbeat(group: str, generation: int, member: str, version: int = 4, *, instance: str | None = None) -> Request:
    fields: dict[str, Any] = {"group_id": group, "generation_id": generation, "member_id": member}
    if version >= 3:
        fields["group_instance_id"] = instance
    return ApiKey.HEARTBEAT, version, fields


def leave_old(group: str, member: str, version: int) -> Request:
    return ApiKey.LEAVE_GROUP, version, {"group_id": group, "member_id": member}


def leave(group: str, members: Iterable[tuple[str, str | None]], version: int = 5) -> Request:
    reason = {"reason": "done"} if version >= 5 else {}
    identities = [
        struct("leave_group", "MemberIdentity", member_id=member, group_instance_id=instance, **reason)
        for member, instance in members
    ]
    return ApiKey.LEAVE_GROUP, version, {"group_id": group, "members": identities}


def commit(
    group: str,
    topic: str | UUID,
    offsets: dict[int, int],
    member: str = "",
    generation: int = -1,
    version: int = 9,
    *,
    instance: str | None = None,
    metadata: str | None = "",
    retention: int | None = None,
) -> Request:
    partitions = [
        struct(
            "offset_commit",
            "OffsetCommitRequestPartition",
            partition_index=index,
            committed_offset=offset,
            committed_metadata=metadata,
        )
        for index, offset in offsets.items()
    ]
    named = {"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}
    fields: dict[str, Any] = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": [struct("offset_commit", "OffsetCommitRequestTopic", partitions=partitions, **named)],
    }
    if version >= 7:
        fields["group_instance_id"] = instance
    if version < 5 and retention is not None:
        fields["retention_time_ms"] = retention
    return ApiKey.OFFSET_COMMIT, version, fields


def fetch(group: str, topics: dict[Any, list[int]] | None, version: int = 7) -> Request:
    kind = "OffsetFetchRequestTopic" if version < 8 else "OffsetFetchRequestTopics"
    key = "name" if version < 10 else "topic_id"
    wanted = (
        None
        if topics is None
        else [
            struct("offset_fetch", kind, **{key: name}, partition_indexes=indexes) for name, indexes in topics.items()
        ]
    )
    if version < 8:
        return ApiKey.OFFSET_FETCH, version, {"group_id": group, "topics": wanted}
    one = struct("offset_fetch", "OffsetFetchRequestGroup", group_id=group, topics=wanted)
    return ApiKey.OFFSET_FETCH, version, {"groups": [one]}


def describe(*groups: str, version: int = 6, operations: bool = False) -> Request:
    asked = {"include_authorized_operations": operations} if version >= 3 else {}
    return ApiKey.DESCRIBE_GROUPS, version, {"groups": list(groups), **asked}


def listed(version: int = 5, **filters: list[str]) -> Request:
    return ApiKey.LIST_GROUPS, version, dict(filters)


def delete(*groups: str, version: int = 2) -> Request:
    return ApiKey.DELETE_GROUPS, version, {"groups_names": list(groups)}


def delete_offsets(group: str, **topics: list[int]) -> Request:
    wanted = [
        struct(
            "offset_delete",
            "OffsetDeleteRequestTopic",
            name=name,
            partitions=[
                struct("offset_delete", "OffsetDeleteRequestPartition", partition_index=index) for index in indexes
            ],
        )
        for name, indexes in topics.items()
    ]
    return ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": wanted}


def find(version: int, key: str = "g", kind: int = 0) -> Request:
    if version >= 4:
        return ApiKey.FIND_COORDINATOR, version, {"coordinator_keys": [key], "key_type": kind}
    return ApiKey.FIND_COORDINATOR, version, {"key": key} | ({"key_type": kind} if version >= 1 else {})


# --- playing ----------------------------------------------------------------------------------------------------------


class Player:
    """Sends, receives and notes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.notes: list[tuple[str, str]] = []
        self._names: dict[str, str] = {}
        self._story = ""
        self.a = world.connect("one")
        self.b = world.connect("two")
        self.c = world.connect("three")
        self.d = world.connect("four")

    def play(self, story: "Callable[[Player], None]") -> None:
        self._story = story.__name__
        story(self)

    def send(self, request: Request, connection: Connection | None = None) -> None:
        """Send what will have to wait."""
        (connection or self.a).send(*request)
        self.world.sleep(0.2)

    def receive(self, label: str, connection: Connection | None = None) -> Any:
        response = (connection or self.a).receive()
        self.notes.append((f"{self._story}: {label}", self._text(response)))
        return response

    def ask(self, label: str, request: Request, connection: Connection | None = None) -> Any:
        (connection or self.a).send(*request)
        return self.receive(label, connection)

    def _text(self, value: Any) -> str:
        if isinstance(value, Message):
            fields = ((field.name, getattr(value, field.name)) for field in value.SCHEMA)
            kept = [f"{name}={self._field(name, one)}" for name, one in fields if name not in ("host", "port")]
            return f"{type(value).__name__}({', '.join(kept)})"
        if isinstance(value, list | tuple):
            return f"[{', '.join(sorted(self._text(one) for one in value))}]"
        if isinstance(value, str | UUID):
            return repr(GENERATED.sub(self._name, str(value)))
        return repr(value)

    def _field(self, name: str, value: Any) -> str:
        return self._text(value)

    def _name(self, match: re.Match[str]) -> str:
        if match[0] == ZERO_ID:
            return "zero"
        return self._names.setdefault(match[0], f"id{len(self._names)}")


# --- the stories ------------------------------------------------------------------------------------------------------


def versions(api: ApiKey) -> range:
    return range(SERVED[api].first, SERVED[api].last + 1)


def finding(play: Player) -> None:
    for version in versions(ApiKey.FIND_COORDINATOR):
        play.ask(f"v{version}", find(version))
    play.ask("empty key", find(4, ""))
    for version in (3, 4):
        play.ask(f"unknown kind v{version}", find(version, kind=9))


def nothing_there(play: Player) -> None:
    for version in versions(ApiKey.HEARTBEAT):
        play.ask(f"heartbeat v{version}", heartbeat("nope", 1, "m", version))
    play.ask("heartbeat, empty group", heartbeat("", 1, "m"))
    play.ask("sync", sync("nope", 1, "m"))
    play.ask("sync without protocol", sync("nope", 1, "m", kind=None, protocol=None))
    play.ask("sync, empty group", sync("", 1, "m"))
    for version in range(3):
        play.ask(f"leave v{version}", leave_old("nope", "m", version))
    play.ask("leave", leave("nope", [("m", None), ("", "i")]))
    play.ask("leave, empty group", leave("", [("m", None)]))
    play.ask("leave of nobody", leave("nope", []))
    play.ask("join with an id", join("nope", member="m"))
    play.ask("join with a short session", join("nope", session=1))
    play.ask("join, empty group", join(""))
    play.ask("describe", describe("nope", ""))
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        play.ask(f"describe v{version}", describe("nope", version=version, operations=True))
    for version in versions(ApiKey.OFFSET_COMMIT)[:-1]:
        play.ask(f"commit of a generation v{version}", commit("nope", "orders", {0: 1}, "m", 1, version))
    play.ask("fetch", fetch("nope", {"orders": [0, 9], "ghost": [0]}))
    play.ask("fetch everything", fetch("nope", None))
    play.ask("fetch v8", fetch("nope", {"orders": [0]}, 8))
    play.ask("fetch, empty group", fetch("", {"orders": [0]}))
    play.ask("delete", delete("nope", ""))
    play.ask("delete offsets", delete_offsets("nope", orders=[0]))
    play.ask("delete offsets, empty group", delete_offsets("", orders=[0]))


def refused_at_birth(play: Player) -> None:
    play.ask("no protocols", join("unborn", protocols={}))
    play.ask("no type", join("unborn", kind=""))
    play.ask("no protocols v3", join("unborn", 3, protocols={}))
    play.world.sleep(0.5)
    play.ask("describe", describe("unborn"))


def simple_group(play: Player) -> None:
    orders = play.world.topic_id("orders")
    for version in versions(ApiKey.OFFSET_COMMIT)[:-1]:
        play.ask(f"commit v{version}", commit("simple", "orders", {0: version, 1: 5, 9: 1}, version=version))
    play.ask("commit v10", commit("simple", orders, {0: 10, 9: 1}, version=10))
    play.ask("commit to an unknown topic", commit("simple", "ghost", {0: 1}))
    play.ask("commit to an unknown id", commit("simple", UNKNOWN_TOPIC_ID, {0: 1}, version=10))
    play.ask("commit, empty group", commit("", "orders", {0: 1}))
    play.ask("too much metadata", commit("simple", "orders", {0: 1, 1: 2}, metadata="x" * 101))
    play.ask("just enough metadata", commit("simple", "orders", {2: 1}, metadata="é" * 100))
    play.ask("null metadata", commit("simple", "orders", {3: 1}, metadata=None))
    play.ask("own retention", commit("simple", "orders", {2: 1}, version=4, retention=100_000))
    play.ask("negative offset", commit("simple", "orders", {0: -5}))
    play.ask("member without generation", commit("simple", "orders", {0: 1}, "m", -1))
    play.ask("generation 0", commit("simple", "orders", {0: 1}, "m", 0))
    play.ask("instance", commit("simple", "orders", {0: 1}, instance="i"))
    for version in versions(ApiKey.OFFSET_FETCH)[:-1]:
        play.ask(f"fetch v{version}", fetch("simple", {"orders": [0, 1, 2, 3, 7]}, version))
    play.ask("fetch v10", fetch("simple", {orders: [0, 1]}, 10))
    play.ask("fetch an unknown id", fetch("simple", {UNKNOWN_TOPIC_ID: [0]}, 10))
    play.ask("fetch twice the same", fetch("simple", {"orders": [0, 0]}))
    for version in versions(ApiKey.OFFSET_FETCH)[1:]:
        play.ask(f"fetch everything v{version}", fetch("simple", None, version))
    for version in versions(ApiKey.LIST_GROUPS):
        play.ask(f"list v{version}", listed(version))
    for kind in ("classic", "Classic", "consumer", "nonsense"):
        play.ask(f"list type {kind}", listed(types_filter=[kind]))
    for state in ("EMPTY", " Empty", "stable", "nonsense"):
        play.ask(f"list state {state}", listed(states_filter=[state]))
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        play.ask(f"describe v{version}", describe("simple", version=version, operations=True))
    play.ask("delete offsets", delete_offsets("simple", orders=[0, 9], ghost=[1]))
    play.ask("what is left", fetch("simple", {"orders": [0, 1]}))
    play.ask("join", join("simple", 3))
    play.ask("describe joined", describe("simple"))


def first_generation(play: Player) -> None:
    one = play.ask("join without id", join("g")).member_id
    play.world.sleep(0.5)
    play.ask("describe pending", describe("g"))
    play.ask("commit while pending", commit("g", "orders", {0: 1}))
    play.ask("join", join("g", member=one))
    play.ask("heartbeat", heartbeat("g", 1, one))
    play.ask("commit too early", commit("g", "orders", {0: 1}, one, 1))
    play.ask("describe", describe("g"))
    play.ask("join again", join("g", member=one))
    play.ask("delete offsets", delete_offsets("g", orders=[0], other=[0]))
    play.ask("sync with another protocol", sync("g", 1, one, protocol="x"))
    play.ask("sync with another type", sync("g", 1, one, kind="x"))
    play.ask("sync of another generation", sync("g", 7, one))
    play.ask("sync of nobody", sync("g", 1, "ghost"))
    play.ask("sync of no instance", sync("g", 1, one, instance="i"))
    play.ask("sync", sync("g", 1, one, {one: b"A1", "ghost": b"G"}))
    play.ask("sync again", sync("g", 1, one))
    for version in versions(ApiKey.SYNC_GROUP):
        play.ask(f"sync v{version}", sync("g", 1, one, version=version))
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        play.ask(f"describe v{version}", describe("g", version=version))
    play.ask("commit", commit("g", "orders", {0: 11, 1: 12}, one, 1))
    play.ask("commit of a stranger", commit("g", "orders", {0: 1}))
    play.ask("commit of an old generation", commit("g", "orders", {0: 1}, one, 0))
    play.ask("commit of nobody", commit("g", "orders", {0: 1}, "ghost", 1))
    play.ask("commit of no instance", commit("g", "orders", {0: 1}, one, 1, instance="i"))
    play.ask("commit without generation", commit("g", "orders", {0: 1}, one, -1))
    play.ask("join with another protocol", join("g", protocols={"sticky": SUBSCRIPTION}))
    play.ask("join with another type", join("g", kind="connect"))
    play.ask("join with another type v3", join("g", 3, kind="connect"))
    play.ask("delete", delete("g"))
    play.ask("delete offsets of a stable group", delete_offsets("g", orders=[0], other=[0]))
    play.ask("heartbeat of no instance", heartbeat("g", 1, one, instance="i"))
    play.ask("leave", leave("g", [(one, None)]))


def more_members(play: Player) -> None:
    one = play.ask("one, without id", join("m")).member_id
    play.ask("one", join("m", member=one))
    play.ask("sync alone", sync("m", 1, one, {one: b"all"}))
    two = play.ask("two, without id", join("m"), play.b).member_id
    play.ask("describe with a pending member", describe("m"))
    play.send(join("m", member=two), play.b)
    play.ask("heartbeat while preparing", heartbeat("m", 1, one))
    play.ask("sync while preparing", sync("m", 1, one))
    play.ask("commit while preparing", commit("m", "orders", {0: 13}, one, 1))
    play.ask("describe while preparing", describe("m"))
    play.ask("one again", join("m", member=one))
    play.receive("two", play.b)
    play.send(sync("m", 2, two), play.b)
    play.ask("the leader's sync", sync("m", 2, one, {one: b"A", two: b"B"}))
    play.receive("the follower's sync", play.b)
    play.ask("heartbeat of the old generation", heartbeat("m", 1, two))
    play.ask("heartbeat", heartbeat("m", 2, two))
    play.ask("the follower joins as before", join("m", member=two), play.b)
    play.ask("still stable", describe("m"))
    play.send(join("m", member=two, protocols={"range": SUBSCRIPTION + b"\1"}), play.b)
    play.ask("changed metadata", heartbeat("m", 2, one))
    play.ask("one rejoins", join("m", member=one))
    play.receive("two rejoined", play.b)
    play.ask("nothing for the follower", sync("m", 3, one, {one: b"A"}))
    play.ask("the follower's sync again", sync("m", 3, two), play.b)
    three = play.ask("three, without id", join("m"), play.c).member_id
    play.send(join("m", member=three), play.c)
    four = play.ask("four, without id", join("m"), play.d).member_id
    play.send(join("m", member=one))
    play.send(join("m", member=two), play.b)
    play.ask("the pending member leaves", leave("m", [(four, None)]), play.d)
    play.receive("one, generation 4")
    play.receive("two, generation 4", play.b)
    play.receive("three, generation 4", play.c)
    play.ask("the group is full", join("m"), play.d)
    play.ask("the group is full v3", join("m", 3), play.d)
    play.ask("sync of three", sync("m", 4, one, {one: b"1", two: b"2", three: b"3"}))
    play.ask("some leave", leave("m", [(three, None), ("ghost", None), ("", "i"), (two, "i")]))
    play.ask("gone", heartbeat("m", 4, three))
    play.ask("told", heartbeat("m", 4, one))
    play.ask("leave v2", leave_old("m", two, 2))
    play.ask("leave v0", leave_old("m", one, 0))
    play.ask("empty", describe("m"))
    play.ask("leave v1 of nobody", leave_old("m", one, 1))
    play.ask("heartbeat", heartbeat("m", 5, one))
    play.ask("sync", sync("m", 5, one))
    play.ask("commit of the last generation", commit("m", "orders", {0: 1}, one, 5))
    play.ask("join with the old id", join("m", member=one))
    play.ask("commit of an administrator", commit("m", "orders", {0: 77}))
    play.ask("delete offsets", delete_offsets("m", orders=[0]))
    play.ask("fetch", fetch("m", {"orders": [0, 1]}))
    play.ask("delete", delete("m"))
    play.ask("delete again", delete("m"))
    play.ask("fetch everything", fetch("m", None))


def static_members(play: Player) -> None:
    one = play.ask("one", join("st", instance="i1")).member_id
    play.ask("one's sync", sync("st", 1, one, {one: b"S1"}, instance="i1"))
    play.send(join("st", instance="i2"), play.b)
    play.ask("one again", join("st", member=one, instance="i1"))
    two = play.receive("two", play.b).member_id
    play.ask("the leader's sync", sync("st", 2, one, {one: b"S1", two: b"S2"}, instance="i1"))
    play.ask("two's sync", sync("st", 2, two, instance="i2"), play.b)
    back = play.ask("two is back", join("st", instance="i2"), play.b).member_id
    play.ask("fenced heartbeat", heartbeat("st", 2, two, instance="i2"))
    play.ask("heartbeat without instance", heartbeat("st", 2, two))
    play.ask("fenced sync", sync("st", 2, two, instance="i2"))
    play.ask("fenced commit", commit("st", "orders", {0: 1}, two, 2, instance="i2"))
    play.ask("fenced join", join("st", member=two, instance="i2"), play.b)
    play.ask("fenced leave", leave("st", [(two, "i2")]))
    play.ask("two's sync again", sync("st", 2, back, instance="i2"), play.b)
    play.ask("another instance", heartbeat("st", 2, back, instance="i9"))
    for version in (9, 8, 5):
        one = play.ask(f"the leader is back v{version}", join("st", version, instance="i1")).member_id
        play.ask(f"its sync, v{version}", sync("st", 2, one, version=3 if version == 5 else 5, instance="i1"))
    play.ask("describe", describe("st"))
    play.ask("describe v3", describe("st", version=3))
    play.ask("an administrator removes", leave("st", [("", "i2"), ("", "i9")]))
    play.ask("heartbeat", heartbeat("st", 2, one, instance="i1"))
    play.ask("alone", join("st", member=one, instance="i1"))
    play.ask("leave v3", leave("st", [(one, "i1")], 3))
    play.ask("empty", describe("st"))


def static_member_with_another_preference(play: Player) -> None:
    both = {"range": SUBSCRIPTION, "sticky": SUBSCRIPTION}
    one = play.ask("one", join("sp", instance="i1", protocols=both)).member_id
    play.ask("sync", sync("sp", 1, one, {one: b"x"}, instance="i1"))
    play.ask("back", join("sp", instance="i1", protocols=dict(reversed(both.items()))))


def static_member_back_before_the_assignment(play: Player) -> None:
    one = play.ask("one", join("sb", instance="i1")).member_id
    play.send(join("sb", instance="i2"), play.b)
    play.ask("one again", join("sb", member=one, instance="i1"))
    two = play.receive("two", play.b).member_id
    play.send(sync("sb", 2, two, instance="i2"), play.b)
    play.send(join("sb", instance="i2"), play.c)
    play.receive("fenced sync", play.b)
    play.ask("the leader is told", sync("sb", 2, one, {one: b"1", two: b"2"}, instance="i1"))
    play.ask("one once more", join("sb", member=one, instance="i1"))
    play.receive("two is back", play.c)


def session_expires(play: Player) -> None:
    one = play.ask("without id", join("ex", session=6_000)).member_id
    play.ask("join", join("ex", member=one, session=6_000))
    play.ask("sync", sync("ex", 1, one, {one: b"x"}))
    play.world.sleep(7.5)
    play.ask("describe", describe("ex"))
    play.ask("heartbeat", heartbeat("ex", 1, one))


def rebalance_expires(play: Player) -> None:
    slow = {"session": 20_000, "rebalance": 1_000}
    one = play.ask("one, without id", join("to", **slow)).member_id
    play.ask("one", join("to", member=one, **slow))
    play.ask("sync", sync("to", 1, one, {one: b"x"}))
    two = play.ask("two, without id", join("to", **slow), play.b).member_id
    play.ask("two waits for one in vain", join("to", member=two, **slow), play.b)
    play.ask("one is out", heartbeat("to", 1, one))
    play.world.sleep(1.5)
    play.ask("two did not sync", heartbeat("to", 2, two))
    play.ask("describe", describe("to"))


def other_protocols(play: Player) -> None:
    protocols = {"sessioned": b"abc", "compatible": b""}
    one = play.ask("join", join("cn", 3, kind="connect", protocols=protocols)).member_id
    play.ask("sync", sync("cn", 1, one, {one: b"z"}, kind="connect", protocol="sessioned"))
    play.ask("describe", describe("cn"))
    play.ask("delete offsets", delete_offsets("cn", orders=[0]))
    two = play.ask("unreadable subscription", join("bs", 3, protocols={"range": b"\0"})).member_id
    play.ask("its sync", sync("bs", 1, two, {two: b""}))
    play.ask("its offsets", commit("bs", "orders", {0: 1}, two, 1))
    play.ask("are kept", delete_offsets("bs", orders=[0]))


STORIES: tuple[Callable[[Player], None], ...] = (
    finding,
    nothing_there,
    simple_group,
    first_generation,
    more_members,
    static_members,
    static_member_with_another_preference,
    static_member_back_before_the_assignment,
    session_expires,
    rebalance_expires,
    other_protocols,
    refused_at_birth,
)
