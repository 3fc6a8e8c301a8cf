# ruff: noqa: E501 -- the settings read as rows
"""The producer's settings."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.client.settings.base import INT_MAX, NotEmpty, setting, with_default
from barnabas.client.settings.common import RETRIES, CommonSettings
from barnabas.config.definitions import ConfigType, Importance, OneOf, Value, at_least, between
from barnabas.errors import UsageError

__all__ = ["ProducerSettings"]

_INT, _LONG, _BOOLEAN, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN, ConfigType.STRING
_LIST, _CLASS = ConfigType.LIST, ConfigType.CLASS
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_IN_FLIGHT_MAX: Final = 5
"""The most requests in flight with idempotence: brokers keep a producer's last five batches to detect duplicates."""


_ROUND_ROBIN: Final = {
    "round_robin": "round_robin",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
}


class _GzipLevel:
    """The levels of gzip; -1 stands for zlib's default."""

    def broken_by(self, value: Value) -> str | None:
        assert isinstance(value, int), value
        return None if value == -1 or 1 <= value <= 9 else "Value must be between 1 and 9 or equal to -1"

    def __str__(self) -> str:
        return "[1,...,9] or -1"


class ProducerSettings(CommonSettings):
    """A producer's settings. `acks` is -1, 0 or 1 as an attribute."""

    client = "producer"

    # fmt: off
    key_serializer: Callable[[Any], bytes | None] | None = setting(_CLASS, None, None, _HIGH,
        "Called with a record's key, returns its bytes; not called for None. Unset: keys are bytes already.")
    value_serializer: Callable[[Any], bytes | None] | None = setting(_CLASS, None, None, _HIGH,
        "Called with a record's value, returns its bytes; not called for None, a tombstone. Unset: values are bytes already.")
    acks: int = setting(_STRING, "all", OneOf("all", "-1", "0", "1"), _LOW,
        "The brokers that must have a record before it counts as sent: none (0), the leader (1), all in-sync replicas (all, or -1).", case="lower")
    compression_type: str = setting(_STRING, "none", OneOf("none", "gzip", "snappy", "lz4", "zstd"), _HIGH,
        "The compression of batches.", case="lower")
    enable_idempotence: bool = setting(_BOOLEAN, True, None, _LOW,
        "Each record is written once and in order, whatever is sent again. Needs `acks=all`, retries and at most five requests in flight; off by itself where those are set otherwise.")
    linger_ms: int = setting(_LONG, 5, at_least(0), _MEDIUM,
        "The time that a batch waits for further records before it is sent though not full.")
    batch_size: int = setting(_INT, 16_384, at_least(0), _MEDIUM,
        "Bytes at which a batch is full. A single larger record makes a batch of its own. Where it is not set, a batch may hold 64 KB, and 256 KB of what `send_many` and `send_table` get, if that comes while it lingers.")
    buffer_memory: int = setting(_LONG, 32 * 1024**2, at_least(0), _HIGH,
        "Bytes of records that may wait to be sent. Sending blocks when they are used up, for `max.block.ms` at most.")
    max_block_ms: int = setting(_LONG, 60_000, at_least(0), _MEDIUM,
        "The time that sending may block for metadata and for memory; also the limit for the calls about transactions.")
    max_request_size: int = setting(_INT, 1024**2, at_least(0), _MEDIUM,
        "Largest request, and with it the largest record, in bytes before compression.")
    delivery_timeout_ms: int = setting(_INT, 120_000, at_least(0), _MEDIUM,
        "A record that is not acknowledged after this long has failed. At least `linger.ms` + `request.timeout.ms`.")
    max_in_flight_requests_per_connection: int = setting(_INT, 5, at_least(1), _LOW,
        "Requests on their way to one broker at a time; at most five with idempotence.")
    compression_gzip_level: int = setting(_INT, -1, _GzipLevel(), _MEDIUM,
        "Level of gzip; -1 is zlib's choice, 6.")
    compression_lz4_level: int = setting(_INT, 9, between(1, 17), _MEDIUM,
        "Level of lz4. 9 means the fast compressor, as in Kafka; others the slow one that compresses more.")
    compression_zstd_level: int = setting(_INT, 3, between(-131_072, 22), _MEDIUM,
        "Level of zstd.")
    partitioner_ignore_keys: bool = setting(_BOOLEAN, False, None, _MEDIUM,
        "Records with a key are spread as if they had none.")
    partitioner_adaptive_partitioning_enable: bool = setting(_BOOLEAN, True, None, _LOW,
        "Records without a key go more to partitions whose brokers are faster.")
    partitioner_availability_timeout_ms: int = setting(_LONG, 0, at_least(0), _LOW,
        "A partition whose broker has taken nothing for this long gets no records without a key; 0: never mind.")
    partitioner_rack_aware: bool = setting(_BOOLEAN, False, None, _LOW,
        "Records without a key go to partitions whose leader is in the rack of this client (`client.rack`), as long as there are any.")
    client_rack: str = setting(_STRING, "", None, _LOW,
        "The rack of this client, for `partitioner.rack.aware`.")
    metadata_max_idle_ms: int = setting(_LONG, 300_000, at_least(5000), _LOW,
        "A topic to which nothing was sent for this long is no longer asked for.")
    transaction_timeout_ms: int = setting(_INT, 60_000, at_least(1), _LOW,
        "A transaction that is open for longer is aborted by the broker.")
    transaction_two_phase_commit_enable: bool = setting(_BOOLEAN, False, None, _LOW,
        "Transactions take part in commits over several systems (KIP-939): the broker never ends them by itself, so `transaction.timeout.ms` has no meaning.")
    transactional_id: str | None = setting(_STRING, None, NotEmpty(), _LOW,
        "Makes the producer transactional. Of several producers with the same id only the latest can write.")
    retries: int = RETRIES
    partitioner_class: Any = setting(_CLASS, None, None, _MEDIUM,
        "Chooses the partition of a record that names none: `round_robin`, or a function of topic, key, value (all as sent) and the number of partitions. Unset: by murmur2 of the key as Kafka's Java producer; without a key one partition until a batch is full, then another.", names=_ROUND_ROBIN)
    interceptor_classes: tuple[Any, ...] = setting(_LIST, (), None, _LOW,
        "Objects, or classes of such, with `on_send(record)`, which gets each ProducerRecord before it is serialized and may return another, `on_acknowledgement(error, metadata)`, or both. What they raise is logged. Bulk calls are refused.", names={})
    # fmt: on
    receive_buffer_bytes: int = with_default(CommonSettings.receive_buffer_bytes, 32_768)

    def batch_size_of(self, unset: int) -> int:
        """Returns batch.size if it is set, otherwise `unset`, or less if max.request.size is."""
        if "batch.size" in self.given:
            return self.batch_size
        return max(self.batch_size, min(unset, self.max_request_size))

    @property
    def compression_level(self) -> int | None:
        """The level of the codec in use, None if the codec has no levels."""
        if self.compression_type in ("none", "snappy"):
            return None
        level: int = self[f"compression.{self.compression_type}.level"]
        return level

    def _completed(self, values: dict[str, Any], given: Mapping[str, object]) -> list[str]:
        warnings = super()._completed(values, given)
        values["acks"] = -1 if values["acks"] == "all" else int(values["acks"])
        warnings += _settle_idempotence(values, given)
        if values["transaction.two.phase.commit.enable"]:
            _check_two_phase_commit(values, given)
        needed = min(values["linger.ms"] + values["request.timeout.ms"], INT_MAX)
        if values["delivery.timeout.ms"] < needed:
            if "delivery.timeout.ms" in given:
                raise UsageError(
                    f"delivery.timeout.ms={values['delivery.timeout.ms']} must be at least linger.ms +"
                    f" request.timeout.ms = {needed}, or the first try could not end in time"
                )
            values["delivery.timeout.ms"] = needed
        return warnings


def _check_two_phase_commit(values: dict[str, Any], given: Mapping[str, object]) -> None:
    name = "transaction.two.phase.commit.enable"
    if values["transactional.id"] is None:
        raise UsageError(f"{name} needs a transactional.id")
    if "transaction.timeout.ms" in given:
        raise UsageError(f"transaction.timeout.ms has no meaning with {name}: leave one of them out")


def _settle_idempotence(values: dict[str, Any], given: Mapping[str, object]) -> list[str]:
    """Turns idempotence off if other settings rule it out, and returns a warning. Raises UsageError if idempotence or a
    transaction was asked for, and for too many requests in flight: their order depends on idempotence."""
    if not values["enable.idempotence"]:
        reason = "enable.idempotence=false"
    elif values["max.in.flight.requests.per.connection"] > _IN_FLIGHT_MAX:
        raise UsageError(
            f"max.in.flight.requests.per.connection must be at most {_IN_FLIGHT_MAX} with enable.idempotence;"
            " lower it, or set enable.idempotence=false"
        )
    elif values["acks"] != -1:
        reason = f"acks={values['acks']}"
    elif values["retries"] == 0:
        reason = "retries=0"
    else:
        return []
    if values["transactional.id"] is not None:
        raise UsageError(f"transactional.id needs an idempotent producer, which {reason} rules out")
    if not values["enable.idempotence"]:
        return []
    if "enable.idempotence" in given:
        raise UsageError(f"enable.idempotence needs acks=all and retries, which {reason} rules out")
    values["enable.idempotence"] = False
    return [f"idempotence is off because of {reason}: records may be doubled or change their order when sent again"]
