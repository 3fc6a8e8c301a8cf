"""Calls the application's code for each record: serializers, a partitioner, interceptors."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from barnabas.client.producer.producer_batch import RecordMetadata
from barnabas.client.settings import ProducerSettings
from barnabas.errors import UsageError

__all__ = ["Interceptors", "ProducerRecord", "RecordSerializer"]

_METHODS: Final = ("on_send", "on_acknowledgement")
_log = logging.getLogger("barnabas.client")


class RecordSerializer:
    """Applies the settings key.serializer, value.serializer and partitioner.class."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._serialize_key = settings.key_serializer
        self._serialize_value = settings.value_serializer
        self._partitioner = settings.partitioner_class if callable(settings.partitioner_class) else None

    def serialize(
        self, topic: str, partition_count: int, value: Any, key: Any, partition: Any
    ) -> tuple[Any, Any, int | None]:
        """Returns the serialized value and key, and the partition that the application's partitioner chooses."""
        if key is not None and self._serialize_key is not None:
            key = self._serialize_key(key)
        if value is not None and self._serialize_value is not None:
            value = self._serialize_value(value)
        if partition is None and self._partitioner is not None:
            partition = self._partitioner(topic, key, value, partition_count)
            if not isinstance(partition, int) or not 0 <= partition < partition_count:
                valid = f"{topic}, which has partitions 0 to {partition_count - 1}"
                raise UsageError(f"partitioner.class chose {partition!r} for {valid}")
        return value, key, partition


class ProducerRecord(NamedTuple):
    """The arguments of `send`: a record that is not serialized, and has a partition only if the application gave
    one."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Any = None


class Interceptors:
    """Applies the setting interceptor.classes. Exceptions of interceptors are logged, and otherwise ignored."""

    def __init__(self, given: Iterable[Any]) -> None:
        """Takes interceptors, or classes of them. Raises UsageError for an object without any of the methods."""
        self._interceptors = [interceptor() if isinstance(interceptor, type) else interceptor for interceptor in given]
        for interceptor in self._interceptors:
            if not any(callable(getattr(interceptor, name, None)) for name in _METHODS):
                raise UsageError(f"interceptor.classes: {interceptor!r} has neither {' nor '.join(_METHODS)}")

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Returns the record after the changes of all interceptors."""
        for interceptor in self._interceptors:
            changed = _call(interceptor, "on_send", record)
            if isinstance(changed, ProducerRecord):
                record = changed
            elif changed is not None:
                _log.error("on_send of %r gives %r, which is no ProducerRecord; it is ignored", interceptor, changed)
        return record

    def on_acknowledgement(self, error: BaseException | None, metadata: RecordMetadata) -> None:
        for interceptor in self._interceptors:
            _call(interceptor, "on_acknowledgement", error, metadata)

    def watching(self, on_delivery: Callable[..., object] | None) -> Callable[..., object]:
        """Returns a callback for the end of a record, which calls the interceptors, then `on_delivery`."""

        def done(error: BaseException | None, metadata: RecordMetadata) -> None:
            self.on_acknowledgement(error, metadata)
            if on_delivery is not None:
                on_delivery(error, metadata)

        return done

    def not_taken(self, record: ProducerRecord, error: BaseException) -> None:
        """Reports a record that was not appended to a batch to the interceptors."""
        partition = -1 if record.partition is None else record.partition
        self.on_acknowledgement(error, RecordMetadata(record.topic, partition, -1, -1))


def _call(interceptor: Any, name: str, *arguments: Any) -> Any:
    method = getattr(interceptor, name, None)
    if method is None:
        return None
    try:
        return method(*arguments)
    except Exception:
        _log.exception("%s of %r fails", name, interceptor)
        return None
