"""The records that consumers give, with the types of their keys and values for type checkers.

`consumer_records` makes them. Its class is compiled and cannot be generic, so the types are declared here.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["AnyRecord", "ConsumerRecord", "K", "V"]

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import TypeVar

    from barnabas.records.record import Headers

    K = TypeVar("K", default=bytes)
    """What the keys of records are, if they are not None: bytes, or what the deserializer returns."""
    V = TypeVar("V", default=bytes)
    """The same of values."""

    class ConsumerRecord(Generic[K, V]):
        """One record as a consumer gets it."""

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
    """A record where nothing is known of its types."""
else:
    from typing import TypeVar

    from barnabas.records.compiled.consumer_records import ConsumerRecord

    K, V = TypeVar("K"), TypeVar("V")  # Python 3.13 is the first to know defaults
    AnyRecord = ConsumerRecord
