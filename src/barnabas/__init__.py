"""Barnabas: the system that Apache Kafka describes, in Python.

The public doors are `barnabas.Admin`, `barnabas.Producer`, `barnabas.Consumer` (their like for asyncio are in
`barnabas.aio`), `barnabas.testing` (a broker inside your test process), `barnabas.client` and the command
`barnabas`. Everything imports lazily: `import barnabas` itself costs nothing.
"""

from typing import TYPE_CHECKING, Any

from barnabas.version import __version__

if TYPE_CHECKING:
    from barnabas import aio as aio
    from barnabas import errors as errors
    from barnabas import testing as testing
    from barnabas.client.admin.front import Admin
    from barnabas.client.admin.topics import NewTopic
    from barnabas.client.consumer.front import Consumer
    from barnabas.client.offset_messages import OffsetAndMetadata
    from barnabas.client.producer.front import Producer
    from barnabas.records.consumer_record import ConsumerRecord
    from barnabas.types import TopicPartition

__all__ = [
    "Admin",
    "Consumer",
    "ConsumerRecord",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "TopicPartition",
    "__version__",
]

_HOME = {
    "Admin": "barnabas.client.admin.front",
    "Consumer": "barnabas.client.consumer.front",
    "ConsumerRecord": "barnabas.records.compiled.consumer_records",
    "NewTopic": "barnabas.client.admin.topics",
    "OffsetAndMetadata": "barnabas.client.offset_messages",
    "Producer": "barnabas.client.producer.front",
    "TopicPartition": "barnabas.types",
}

_MODULES = ("aio", "errors", "testing")
"""Those that `import barnabas` makes reachable: `barnabas.aio.Producer`, `barnabas.errors.TopicNotFound`."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """Returns all public names, also those that are not imported yet, for completion in shells."""
    return sorted({*globals(), *_HOME, *_MODULES})
