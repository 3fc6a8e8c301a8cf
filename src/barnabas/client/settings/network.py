"""Makes the network client's settings of a client's."""

from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.settings.common import CommonSettings
from barnabas.connection.broker.addresses import parse_bootstrap
from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.connection.network_client import NetworkClientSettings
from barnabas.errors import BrokerUnreachable
from barnabas.version import __version__

if TYPE_CHECKING:
    from barnabas.connection.broker.sasl import Mechanism

__all__ = ["network_client_settings"]


def network_client_settings(
    settings: CommonSettings, *, allow_auto_topic_creation: bool = True
) -> NetworkClientSettings:
    """Returns the network client's settings, in seconds. Raises UsageError for a malformed address."""
    idle_ms, bootstrap_ms = settings.connections_max_idle_ms, settings.bootstrap_timeout_ms
    return NetworkClientSettings(
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
        cluster_check=settings.metadata_cluster_check_enable,
        bootstrap_resolve_timeout_s=settings.bootstrap_resolve_timeout_ms / 1000 or float("inf"),
        bootstrap_timeout_s=float("inf") if bootstrap_ms < 0 else bootstrap_ms / 1000,
        on_unreachable=partial(_warn_unreachable, settings.client),
    )


def _warn_unreachable(client: str, error: BrokerUnreachable) -> None:
    import logging  # imported only after a mistake

    logging.getLogger("barnabas.client").warning("the %s goes on trying: %s", client, error)


def _mechanism(settings: CommonSettings) -> "Mechanism":
    """Returns a new mechanism for one authentication. The settings have been checked before."""
    from barnabas.connection.broker.sasl import OAuthBearer, Plain, ScramSha256, ScramSha512  # most need no SASL

    if settings.sasl_mechanism == OAuthBearer.name:
        assert settings.sasl_oauthbearer_token_provider is not None
        return OAuthBearer(settings.sasl_oauthbearer_token_provider)
    assert settings.sasl_username is not None
    assert settings.sasl_password is not None
    kinds: tuple[type[Plain] | type[ScramSha256] | type[ScramSha512], ...] = (Plain, ScramSha256, ScramSha512)
    kind = next(kind for kind in kinds if kind.name == settings.sasl_mechanism)
    return kind(settings.sasl_username, settings.sasl_password)
