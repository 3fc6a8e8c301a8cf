"""The clients for asyncio, under the names of the synchronous ones in `barnabas`. Imported at first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin.aio_front import Admin
    from barnabas.client.consumer.aio_front import Consumer
    from barnabas.client.producer.aio_front import Producer

__all__ = ["Admin", "Consumer", "Producer"]

_HOME = {
    "Admin": "barnabas.client.admin.aio_front",
    "Consumer": "barnabas.client.consumer.aio_front",
    "Producer": "barnabas.client.producer.aio_front",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
