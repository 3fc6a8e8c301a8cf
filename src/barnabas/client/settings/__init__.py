"""The clients' settings under Kafka's names: definitions, parsing, checks.

Main classes: `ProducerSettings`, `ConsumerSettings`, `AdminSettings`. They take `linger_ms=5` or `{"linger.ms": 5}`,
are immutable, and have an attribute for each setting. They are independent of connections; only `network` and `tls`
convert settings for those. The classes are imported at their first use, because no program needs all three.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.settings.admin import AdminSettings
    from barnabas.client.settings.base import ClientSettings
    from barnabas.client.settings.common import CommonSettings
    from barnabas.client.settings.consumer import ConsumerSettings
    from barnabas.client.settings.producer import ProducerSettings

__all__ = ["AdminSettings", "ClientSettings", "CommonSettings", "ConsumerSettings", "ProducerSettings"]

_HOME = {
    "AdminSettings": "admin",
    "ClientSettings": "base",
    "CommonSettings": "common",
    "ConsumerSettings": "consumer",
    "ProducerSettings": "producer",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
