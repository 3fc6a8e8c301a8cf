"""From a client's settings to the engine's."""

from functools import partial
from typing import TYPE_CHECKING

from barnabas import __version__
from barnabas.client.core.addresses import parse_bootstrap
from barnabas.client.core.engine import EngineSettings
from barnabas.client.core.peers import ConnectionSettings
from barnabas.client.core.settings.common import CommonSettings
from barnabas.errors import BrokerUnreachable

if TYPE_CHECKING:
    from barnabas.client.core.sasl import Mechanism

__all__ = ["engine_settings"]


def engine_settings(settings: CommonSettings, *, allow_auto_topic_creation: bool = True) -> EngineSettings:
    """Kafka's settings in seconds. Raises UsageError for an address that is none."""
    idle_ms, bootstrap_ms = settings.connections_max_idle_ms, settings.bootstrap_timeout_ms
    return EngineSettings(
        bootstrap=tuple(parse_bootstrap(settings.bootstrap_servers)),
        connection=ConnectionSettings(
            client_id=settings.client_id or f"barnabas-{__version__}",
            request_timeout_s=settings.request_timeout_ms / 1000,
            setup_timeout_s=settings.socket_connection_setup_timeout_ms / 1000,
            setup_timeout_max_s=settings.socket_connection_setup_timeout_max_ms / 1000,
            backoff_s=settings.reconnect_backoff_ms / 1000,
            backoff_max_s=settings.reconnect_backoff_max_ms / 1000,
            idle_max_s=float("inf") if idle_ms < 0 else idle_ms / 1000,
            send_buffer_bytes=settings.send_buffer_bytes,
            receive_buffer_bytes=settings.receive_buffer_bytes,
            mechanism=partial(_mechanism, settings) if settings.uses_sasl else None,
        ),
        retry_backoff_s=settings.retry_backoff_ms / 1000,
        retry_backoff_max_s=settings.retry_backoff_max_ms / 1000,
        metadata_max_age_s=settings.metadata_max_age_ms / 1000,
        rebootstrap=settings.metadata_recovery_strategy == "rebootstrap",
        rebootstrap_trigger_s=settings.metadata_recovery_rebootstrap_trigger_ms / 1000,
        allow_auto_topic_creation=allow_auto_topic_creation,
        bootstrap_timeout_s=float("inf") if bootstrap_ms < 0 else bootstrap_ms / 1000,
        on_unreachable=partial(_warn_unreachable, settings.client),
    )


def _warn_unreachable(client: str, error: BrokerUnreachable) -> None:
    import logging  # only mistakes pay for this import

    logging.getLogger("barnabas.client").warning("the %s goes on trying: %s", client, error)


def _mechanism(settings: CommonSettings) -> "Mechanism":
    """Imported at its first use: most clients need none."""
    from barnabas.client.core.sasl import mechanism_for

    return mechanism_for(settings)
