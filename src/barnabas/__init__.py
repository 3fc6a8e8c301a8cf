"""Barnabas: the system that Apache Kafka describes, in Python.

The public doors are `barnabas.Admin`, `barnabas.Producer`, `barnabas.Consumer` (their like for asyncio are in
`barnabas.aio`), `barnabas.testing` (a broker inside your test process), `barnabas.client` and the command
`barnabas`. Everything imports lazily: `import barnabas` itself costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.consumer import Consumer
    from barnabas.client.core.admin.topics import NewTopic
    from barnabas.client.core.offset_messages import OffsetAndMetadata
    from barnabas.client.producer import Producer
    from barnabas.records.consumer_kernel import ConsumerRecord
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


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
