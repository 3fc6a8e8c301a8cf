# ruff: noqa: E501 -- the settings read as rows
"""The consumer's settings."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.client.settings.base import NotEmpty, setting, with_default
from barnabas.client.settings.common import API_TIMEOUT, CommonSettings
from barnabas.config.definitions import ConfigType, Importance, OneOf, Value, at_least
from barnabas.errors import UsageError

__all__ = ["BY_DURATION", "ConsumerSettings", "duration_ms"]

_INT, _LONG, _BOOLEAN, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN, ConfigType.STRING
_LIST, _CLASS = ConfigType.LIST, ConfigType.CLASS
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

_JAVA: Final = "org.apache.kafka.clients.consumer."
ASSIGNOR_NAMES: Final = {
    "range": "range",
    "roundrobin": "roundrobin",
    "sticky": "sticky",
    "cooperative-sticky": "cooperative-sticky",
    f"{_JAVA}RangeAssignor": "range",
    f"{_JAVA}RoundRobinAssignor": "roundrobin",
    f"{_JAVA}StickyAssignor": "sticky",
    f"{_JAVA}CooperativeStickyAssignor": "cooperative-sticky",
}
_DURATION: Final = re.compile(
    r"P(?=[0-9T])(?:([0-9]{1,9})D)?(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?",
    re.IGNORECASE,
)
BY_DURATION: Final = "by_duration:"


def duration_ms(text: str) -> int | None:
    """Returns the milliseconds of an ISO 8601 duration, `PnDTnHnMn.nS`, None for any other text. `P1DT2H` is
    93,600,000."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes = (int(group or 0) for group in match.groups()[:3])
    return round(((days * 24 + hours) * 60 + minutes) * 60_000 + float(match[4] or 0) * 1000)


class _OffsetReset:
    """Kafka's four ways to begin without a committed offset."""

    def broken_by(self, value: Value) -> str | None:
        assert isinstance(value, str), value
        if value in ("earliest", "latest", "none"):
            return None
        if value.startswith(BY_DURATION) and duration_ms(value.removeprefix(BY_DURATION)) is not None:
            return None
        return "String must be earliest, latest, none or by_duration:PnDTnHnMn.nS"

    def __str__(self) -> str:
        return "[earliest, latest, none, by_duration:PnDTnHnMn.nS]"


class ConsumerSettings(CommonSettings):
    """A consumer's settings."""

    client = "consumer"

    # fmt: off
    group_id: str | None = setting(_STRING, None, NotEmpty(), _HIGH,
        "The consumer group, whose members share the partitions. Unset: no group; the consumer reads all partitions of the topics that it subscribes to, from where `auto.offset.reset` says, or those that it assigns, and commits nothing.")
    group_instance_id: str | None = setting(_STRING, None, NotEmpty(), _MEDIUM,
        "Makes this a static member: one that comes back within `session.timeout.ms` gets its partitions without a rebalance.")
    key_deserializer: Callable[[bytes], Any] | None = setting(_CLASS, None, None, _HIGH,
        "Called with the bytes of a record's key; not called for None. Unset: keys are bytes.")
    value_deserializer: Callable[[bytes], Any] | None = setting(_CLASS, None, None, _HIGH,
        "Called with the bytes of a record's value; not called for None. Unset: values are bytes.")
    enable_auto_commit: bool = setting(_BOOLEAN, True, None, _MEDIUM,
        "Positions are committed automatically every `auto.commit.interval.ms`. Off without `group.id`.")
    auto_commit_interval_ms: int = setting(_INT, 5000, at_least(0), _LOW,
        "The interval at which positions are committed automatically.")
    auto_offset_reset: str = setting(_STRING, "latest", _OffsetReset(), _MEDIUM,
        "The position without a committed offset, or if that no longer exists: the first record, the end, the first record that is not older than a duration, or an error (none).")
    isolation_level: str = setting(_STRING, "read_uncommitted", OneOf("read_committed", "read_uncommitted"), _MEDIUM,
        "`read_committed`: records of transactions are seen once these are committed, and never if aborted.")
    max_poll_records: int = setting(_INT, 500, at_least(1), _MEDIUM,
        "Most records that one poll returns.")
    max_poll_interval_ms: int = setting(_INT, 300_000, at_least(1), _MEDIUM,
        "A member that has not polled for this long leaves its group.")
    session_timeout_ms: int = setting(_INT, 45_000, at_least(1), _HIGH,
        "A member whose heartbeats have not arrived for this long is taken out of the group by the broker.")
    heartbeat_interval_ms: int = setting(_INT, 3000, at_least(1), _HIGH,
        "The interval at which a member sends heartbeats; below `session.timeout.ms`, better a third of it.")
    fetch_min_bytes: int = setting(_INT, 1, at_least(0), _HIGH,
        "A broker waits until it has this many bytes, `fetch.max.wait.ms` at most.")
    fetch_max_wait_ms: int = setting(_INT, 500, at_least(0), _LOW,
        "The time that a broker waits for `fetch.min.bytes`.")
    fetch_max_bytes: int = setting(_INT, 50 * 1024**2, at_least(0), _MEDIUM,
        "Most bytes in one answer; a larger first batch is sent all the same.")
    max_partition_fetch_bytes: int = setting(_INT, 1024**2, at_least(0), _HIGH,
        "Most bytes of one partition in one answer; a larger first batch is sent all the same.")
    check_crcs: bool = setting(_BOOLEAN, True, None, _LOW,
        "Verify the checksum of each batch.")
    client_rack: str = setting(_STRING, "", None, _LOW,
        "The rack of this client: it may then be sent to a replica in the same rack. Of equal shares of a group's partitions, `range` and the sticky assignors give it those with a replica there.")
    allow_auto_create_topics: bool = setting(_BOOLEAN, True, None, _MEDIUM,
        "A request for a topic that does not exist may create it.")
    exclude_internal_topics: bool = setting(_BOOLEAN, True, None, _MEDIUM,
        "Patterns leave out internal topics such as `__consumer_offsets`.")
    default_api_timeout_ms: int = API_TIMEOUT
    group_protocol: str = setting(_STRING, "classic", OneOf("classic", "consumer"), _HIGH,
        "The protocol by which partitions are assigned, by a member (`classic`). `consumer` (KIP-848), by the broker, is refused: this client does not speak that.", case="lower")
    partition_assignment_strategy: tuple[Any, ...] = setting(_LIST, ("range", "cooperative-sticky"), None, _MEDIUM,
        "The ways in which the members of a group may share partitions, best first: `range`, `roundrobin`, `sticky`, `cooperative-sticky`, or objects of your own. All members must have one in common.", names=ASSIGNOR_NAMES)
    interceptor_classes: tuple[Any, ...] = setting(_LIST, (), None, _LOW,
        "Objects that see records before they are returned (`on_consume`, which may change them) and offsets that were committed (`on_commit`).", names={})
    # fmt: on
    receive_buffer_bytes: int = with_default(CommonSettings.receive_buffer_bytes, -1)

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    def _completed(self, values: dict[str, Any], given: Mapping[str, object]) -> list[str]:
        warnings = super()._completed(values, given)
        if values["group.id"] is None:
            if values["enable.auto.commit"] and "enable.auto.commit" in given:
                raise UsageError("enable.auto.commit needs group.id: offsets are committed for a group")
            values["enable.auto.commit"] = False
        if not values["partition.assignment.strategy"]:
            raise UsageError("partition.assignment.strategy is empty; give at least one, such as range")
        if values["group.protocol"] != "classic":
            raise UsageError(
                "group.protocol=consumer (KIP-848) is not spoken by this client; leave it out: classic groups work with"
                " every broker"
            )
        if values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
            raise UsageError(
                f"heartbeat.interval.ms={values['heartbeat.interval.ms']} must be below"
                f" session.timeout.ms={values['session.timeout.ms']}; a third of it is usual"
            )
        return warnings
