"""interceptor.classes: objects of the application that see each record and what becomes of it."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from barnabas.client.producer.producer_batch import RecordMetadata
from barnabas.errors import UsageError

__all__ = ["Interceptors", "ProducerRecord"]

_METHODS: Final = ("on_send", "on_acknowledgement")
_log = logging.getLogger("barnabas.client")


class ProducerRecord(NamedTuple):
    """A record as `send` got it: not serialized, and not placed unless the application did."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Any = None


class Interceptors:
    """All of a producer's, in their order. What they raise is logged, and breaks nothing."""

    def __init__(self, given: Iterable[Any]) -> None:
        """Objects, or classes to make them of. Raises UsageError for what has none of the methods."""
        self._interceptors = [one() if isinstance(one, type) else one for one in given]
        for one in self._interceptors:
            if not any(callable(getattr(one, name, None)) for name in _METHODS):
                raise UsageError(f"interceptor.classes: {one!r} has neither {' nor '.join(_METHODS)}")

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record as the last of them leaves it."""
        for one in self._interceptors:
            changed = _call(one, "on_send", record)
            if isinstance(changed, ProducerRecord):
                record = changed
            elif changed is not None:
                _log.error("on_send of %r gives %r, which is no ProducerRecord; it is ignored", one, changed)
        return record

    def on_acknowledgement(self, error: BaseException | None, metadata: RecordMetadata) -> None:
        for one in self._interceptors:
            _call(one, "on_acknowledgement", error, metadata)

    def watching(self, on_delivery: Callable[..., object] | None) -> Callable[..., object]:
        """What is called when the record is done: they first, then who sent it."""

        def done(error: BaseException | None, metadata: RecordMetadata) -> None:
            self.on_acknowledgement(error, metadata)
            if on_delivery is not None:
                on_delivery(error, metadata)

        return done

    def not_taken(self, record: ProducerRecord, error: BaseException) -> None:
        """The record did not come into a batch."""
        partition = -1 if record.partition is None else record.partition
        self.on_acknowledgement(error, RecordMetadata(record.topic, partition, -1, -1))


def _call(one: Any, name: str, *arguments: Any) -> Any:
    method = getattr(one, name, None)
    if method is None:
        return None
    try:
        return method(*arguments)
    except Exception:
        _log.exception("%s of %r fails", name, one)
        return None
