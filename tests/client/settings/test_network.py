"""The network client's settings, made of a client's."""

import logging

import pytest

from barnabas.client.settings import AdminSettings, ConsumerSettings
from barnabas.client.settings.network import network_client_settings
from barnabas.connection.broker.sasl import OAuthBearer, Plain, ScramSha512
from barnabas.errors import Attempt, BrokerUnreachable, UsageError


def test_milliseconds_become_seconds() -> None:
    settings = AdminSettings(
        bootstrap_servers="a:1,[::1]:2", request_timeout_ms=1500, reconnect_backoff_ms=10, metadata_max_age_ms=2500,
        socket_connection_setup_timeout_ms=700, connections_max_idle_ms=-1, bootstrap_timeout_ms=-1,
    )  # fmt: skip
    made = network_client_settings(settings)
    assert made.bootstrap == (("a", 1), ("::1", 2))
    connection = made.connection
    assert (connection.request_timeout_s, connection.backoff_s, connection.setup_timeout_s) == (1.5, 0.01, 0.7)
    assert connection.idle_max_s == made.bootstrap_timeout_s == float("inf")
    assert (made.metadata_max_age_s, made.rebootstrap, made.allow_auto_topic_creation) == (2.5, True, True)
    assert (made.cluster_check, made.bootstrap_resolve_timeout_s) == (True, float("inf"))
    changed = network_client_settings(
        AdminSettings(metadata_cluster_check_enable=False, bootstrap_resolve_timeout_ms=1)
    )
    assert (changed.cluster_check, changed.bootstrap_resolve_timeout_s) == (False, 0.001)
    assert connection.client_id.startswith("barnabas-")
    assert connection.mechanism is None
    with pytest.raises(UsageError):
        network_client_settings(AdminSettings(bootstrap_servers="a:x"))


@pytest.mark.parametrize("kind", [Plain, ScramSha512])
def test_each_authentication_has_a_mechanism_of_its_own(kind: type[Plain] | type[ScramSha512]) -> None:
    settings = AdminSettings(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism=kind.name, sasl_username="u", sasl_password="p"
    )
    make = network_client_settings(settings).connection.mechanism
    assert make is not None
    one, other = make(), make()
    assert type(one) is type(other) is kind
    assert one is not other


def test_a_token_is_asked_of_its_provider() -> None:
    settings = AdminSettings(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_provider=lambda: "token",
    )
    make = network_client_settings(settings).connection.mechanism
    assert make is not None
    mechanism = make()
    assert isinstance(mechanism, OAuthBearer)
    assert b"Bearer token" in (mechanism.next(None) or b"")


def test_an_outage_is_logged_with_the_kind_of_the_client(caplog: pytest.LogCaptureFixture) -> None:
    made = network_client_settings(ConsumerSettings())
    assert made.on_unreachable is not None
    attempt = Attempt("a:1", "tcp", "connection refused", "")
    made.on_unreachable(BrokerUnreachable("no broker reachable: a:1", (attempt,)))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "the consumer goes on trying: no broker reachable: a:1"
