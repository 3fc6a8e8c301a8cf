"""The records that consumers return, with the types of keys and values for type checkers.

The class itself is in `compiled.consumer_records`. A compiled class cannot be generic, so the types are declared here.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["AnyRecord", "ConsumerRecord", "K", "V"]

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import TypeVar

    from barnabas.records.record import Headers

    K = TypeVar("K", default=bytes)
    """The type of keys that are not None: bytes, or the type that the deserializer returns."""
    V = TypeVar("V", default=bytes)
    """The type of values that are not None."""

    class ConsumerRecord(Generic[K, V]):
        """One record that a consumer has fetched."""

        key: K | None
        value: V | None
        offset: int
        timestamp: int
        """In milliseconds."""

        @property
        def topic(self) -> str: ...
        @property
        def partition(self) -> int: ...
        @property
        def leader_epoch(self) -> int: ...
        @property
        def timestamp_type(self) -> int: ...
        @property
        def headers(self) -> Headers: ...

    AnyRecord = ConsumerRecord[Any, Any]
    """A record with keys and values of unknown types."""
else:
    from typing import TypeVar

    from barnabas.records.compiled.consumer_records import ConsumerRecord

    K, V = TypeVar("K"), TypeVar("V")  # typing has defaults from Python 3.13 on
    AnyRecord = ConsumerRecord
