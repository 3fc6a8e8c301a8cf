"""Barnabas: the system that Apache Kafka describes, in Python.

The public doors are `barnabas.Admin`, `barnabas.Producer`, `barnabas.Consumer` (their like for asyncio are in
`barnabas.aio`), `barnabas.testing` (a broker inside your test process), `barnabas.client` and the command
`barnabas`. Everything imports lazily: `import barnabas` itself costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas import aio as aio
    from barnabas import errors as errors
    from barnabas import testing as testing
    from barnabas.client.admin import Admin
    from barnabas.client.consumer import Consumer
    from barnabas.client.core.admin.topics import NewTopic
    from barnabas.client.core.offset_messages import OffsetAndMetadata
    from barnabas.client.producer import Producer
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

__version__ = "0.1.0"

_HOME = {
    "Admin": "barnabas.client.admin",
    "Consumer": "barnabas.client.consumer",
    "ConsumerRecord": "barnabas.records.consumer_kernel",
    "NewTopic": "barnabas.client.core.admin.topics",
    "OffsetAndMetadata": "barnabas.client.core.offset_messages",
    "Producer": "barnabas.client.producer",
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
    """Names that were not asked for yet as well, for those who complete them."""
    return sorted({*globals(), *_HOME, *_MODULES})
