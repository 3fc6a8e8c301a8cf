"""The clients' settings under Kafka's names: definitions, parsing, checks.

Main classes: `ProducerSettings`, `ConsumerSettings`, `AdminSettings`. Made from `linger_ms=5` or `{"linger.ms": 5}`
alike; immutable; every setting is an attribute. They know nothing of connections.
"""

from barnabas.client.core.settings.admin import AdminSettings
from barnabas.client.core.settings.base import ClientSettings
from barnabas.client.core.settings.common import CommonSettings
from barnabas.client.core.settings.consumer import ConsumerSettings
from barnabas.client.core.settings.producer import ProducerSettings

__all__ = ["AdminSettings", "ClientSettings", "CommonSettings", "ConsumerSettings", "ProducerSettings"]
