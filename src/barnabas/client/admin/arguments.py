"""Checks the arguments of the admin client's operations, by the names of their parameters.

The fronts do so before an operation begins, so a wrong argument fails at once and without a request.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.client.admin.cluster import FeatureUpdate
from barnabas.client.admin.configs import OPERATIONS, RESOURCE_TYPES, Change, ConfigChange, ConfigResource
from barnabas.client.admin.groups import MemberToRemove
from barnabas.client.admin.topics import ISOLATIONS, TIMES, NewTopic
from barnabas.client.arguments import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    Reader,
    by_partition,
    each_once,
    flag,
    group,
    instance,
    mapping,
    names,
    number,
    numbers,
    offset,
    partition,
    partitions,
    refused,
    seconds,
    sendable,
    several,
    text,
    time_ms,
    topic_name,
    topic_names,
)

if TYPE_CHECKING:
    from barnabas.client.admin.admin_client import KafkaAdminClient

__all__ = ["READERS", "bind"]

T = TypeVar("T")
Flow = Coroutine[Any, Any, T]


def _isolation(what: str, given: object) -> str:
    if not isinstance(given, str) or given not in ISOLATIONS:
        raise refused(what, given, f"use one of {', '.join(ISOLATIONS)}")
    return given


def _place(what: str, given: object) -> int | str:
    if isinstance(given, str) and given not in TIMES:
        raise refused(what, given, f"use one of {', '.join(TIMES)}, or a time in ms")
    return given if isinstance(given, str) else time_ms(what, given)


# --- topics -----------------------------------------------------------------------------------------------------------


def _value(what: str, given: object) -> str:
    if not isinstance(given, str):
        raise refused(what, given, f"a setting's value is str; write {str(given)!r}")
    return sendable(what, given)


def _value_or_none(what: str, given: object) -> str | None:
    return None if given is None else _value(what, given)


def _numbers_or_none(what: str, given: object) -> list[int] | None:
    return None if given is None else list(numbers(what, given))


_settings: Final = mapping(text, _value, '{"retention.ms": "60000"}')
_changed_settings: Final = mapping(text, _value_or_none, '{"retention.ms": "60000"}')
_assignments: Final = mapping(number(0), numbers, "{0: [1, 2]}")
_count: Final = number(-1)
_new: Final = instance(NewTopic, 'NewTopic("orders", partitions=3)')


def _new_topic(what: str, given: object) -> NewTopic:
    topic = NewTopic(given) if isinstance(given, str) else _new(what, given)
    return NewTopic(
        topic_name(f"{what}.name", topic.name),
        _count(f"{what}.partitions", topic.partitions),
        _count(f"{what}.replication_factor", topic.replication_factor),
        _settings(f"{what}.configs", topic.configs),
        _assignments(f"{what}.assignments", topic.assignments),
    )


_new_topics: Final = several(_new_topic, 'topics, such as [NewTopic("orders", partitions=3)]')


def _topics(what: str, given: object) -> list[NewTopic]:
    return [_new_topic(what, given)] if isinstance(given, NewTopic | str) else _new_topics(what, given)


def _replica(what: str, given: object) -> tuple[str, int, int]:
    match given:
        case (name, index, broker_id):
            return topic_name(what, name), number(0)(what, index), number(0)(what, broker_id)
    raise refused(what, given, 'a replica is a topic, a partition and a broker; write ("orders", 0, 1)')


# --- settings ---------------------------------------------------------------------------------------------------------


def _resource(what: str, given: object) -> ConfigResource:
    match given:
        case (str(kind), str(name) | int(name)) if not isinstance(name, bool):
            if kind not in RESOURCE_TYPES:
                raise refused(what, given, f"{kind!r} has no settings; use one of {', '.join(RESOURCE_TYPES)}")
            if kind.startswith("broker") and str(name) and not str(name).isdecimal():
                raise refused(what, given, f"{name!r} is no broker: its name is its node id")
            return ConfigResource(kind, sendable(what, str(name)))
    raise refused(what, given, 'it is nothing that has settings; write ("topic", name)')


def _one_change(what: str, given: object) -> ConfigChange:
    change = _change_instance(what, given)
    if change.operation not in OPERATIONS:
        raise refused(what, given, f"use one of the operations {', '.join(OPERATIONS)}")
    return ConfigChange(
        text(f"{what}.name", change.name), _value_or_none(f"{what}.value", change.value), change.operation
    )


_change_instance: Final = instance(ConfigChange, 'ConfigChange("cleanup.policy", "compact", "append")')
_several_changes: Final = several(_one_change, 'changes, such as {"retention.ms": "60000"}')


def _changes(what: str, given: object) -> Change:
    return _changed_settings(what, given) if isinstance(given, Mapping) else _several_changes(what, given)


# --- features ---------------------------------------------------------------------------------------------------------

_level: Final = number(0, INT16_MAX)
_feature_update: Final = instance(FeatureUpdate, "a level, or FeatureUpdate(1, downgrade=True)")


def _update(what: str, given: object) -> FeatureUpdate:
    if isinstance(given, int):
        return FeatureUpdate(_level(what, given))
    update = _feature_update(what, given)
    return FeatureUpdate(_level(what, update.level), flag(what, update.downgrade), flag(what, update.unsafe))


# --- groups -----------------------------------------------------------------------------------------------------------

_member_instance: Final = instance(
    MemberToRemove, "MemberToRemove(member_id=...) or MemberToRemove(group_instance_id=...)"
)


def _member(what: str, given: object) -> MemberToRemove:
    member = _member_instance(what, given)
    text(what, member.member_id or member.group_instance_id)
    return member


def _groups(what: str, given: Any) -> list[str]:
    return [given] if isinstance(given, str) else _several_groups(what, given)


_several_groups: Final = several(group, 'names of groups, such as ["billing"]')


READERS: Final[Mapping[str, Reader[Any]]] = {
    "at": by_partition(_place, '"latest"'),
    "before": by_partition(number(-1, INT64_MAX), "100"),
    "broker_id": number(0),
    "broker_ids": each_once(numbers),
    "changes": mapping(_resource, _changes, '{("topic", "orders"): {"retention.ms": "60000"}}'),
    "committed": flag,
    "coordinator_epoch": number(-1),
    "counts": mapping(topic_name, number(1), '{"orders": 12}'),
    "directories": mapping(_replica, text, '{("orders", 0, 1): "/disk2/data"}'),
    "documentation": flag,
    "group_id": group,
    "include_fenced": flag,
    "group_ids": each_once(_groups),
    "internal": flag,
    "isolation": _isolation,
    "keys": names,
    "kinds": names,
    "limit": number(1, INT32_MAX),
    "members": each_once(several(_member, "members, such as [MemberToRemove(member_id=...)]")),
    "names": topic_names,
    "offsets": by_partition(offset, "100"),
    "partition": partition,
    "partitions": partitions,
    "pattern": text,
    "producer_epoch": number(0, INT16_MAX),
    "producer_id": number(0, INT64_MAX),
    "producer_ids": each_once(numbers),
    "reason": text,
    "replicas": by_partition(_numbers_or_none, "[1, 2, 3]"),
    "require_stable": flag,
    "resources": each_once(several(_resource, 'what has settings, such as [("topic", "orders")]')),
    "running_longer_than_ms": number(-1, INT64_MAX),
    "states": names,
    "timeout": seconds,
    "topics": _topics,
    "transactional_id": text,
    "transactional_ids": names,
    "types": names,
    "unclean": flag,
    "updates": mapping(text, _update, '{"transaction.version": 2}'),
    "validate_only": flag,
}


def bind(
    call: Callable[..., "Flow[T]"],
) -> Callable[[tuple[Any, ...], dict[str, Any]], Callable[["KafkaAdminClient"], "Flow[T]"]]:
    """Returns a function that checks the arguments for a method of KafkaAdminClient, and gives the bound call, not
    begun yet. None is allowed where it is the default. Raises UsageError."""
    code, defaults = call.__code__, call.__defaults__ or ()
    names_of_all = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    positional = names_of_all[: code.co_argcount - 1]
    default = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
    default.update(call.__kwdefaults__ or {})

    def read(name: str, given: Any) -> Any:
        if name not in names_of_all or (given is None and default.get(name, name) is None):
            return given  # Python refuses arguments that do not exist
        return READERS[name](name, given)

    def bound(given: tuple[Any, ...], named: dict[str, Any]) -> Callable[["KafkaAdminClient"], "Flow[T]"]:
        checked = [read(name, value) for name, value in zip(positional, given, strict=False)]
        checked += given[len(positional) :]
        checked_named = {name: read(name, value) for name, value in named.items()}
        return lambda admin_client: call(admin_client, *checked, **checked_named)

    return bound
