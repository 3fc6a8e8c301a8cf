# ruff: noqa: E501 -- the settings read as rows
"""The settings that every client has: where the brokers are, how to reach them, how long to try, who the client is."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.client.settings.base import INT_MAX, ClientSettings, setting
from barnabas.config.definitions import ConfigType, Importance, OneOf, at_least, between
from barnabas.errors import UsageError

__all__ = ["API_TIMEOUT", "RETRIES", "CommonSettings"]

_INT, _LONG, _BOOLEAN, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN, ConfigType.STRING
_LIST, _CLASS, _PASSWORD = ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

# fmt: off
API_TIMEOUT: Final[Any] = setting(_INT, 60_000, at_least(0), _MEDIUM,
    "The time that a call without a timeout of its own may take.")
RETRIES: Final[Any] = setting(_INT, INT_MAX, between(0, INT_MAX), _HIGH,
    "The number of times that a request which failed for a passing reason is sent again, within its time.")
# fmt: on


class CommonSettings(ClientSettings):
    """The settings that every client has."""

    # fmt: off
    bootstrap_servers: tuple[str, ...] = setting(_LIST, ("localhost:9092",), None, _HIGH,
        "Addresses to begin with, as host:port. One that answers is enough; all others are learnt from it.")
    bootstrap_timeout_ms: int = setting(_LONG, -1, at_least(-1), _LOW,
        "The time to try the addresses of `bootstrap.servers` while none has ever answered, each of them once at least; then calls fail with every attempt. -1: as long as the calls may take. Not a setting of Kafka.")
    bootstrap_resolve_timeout_ms: int = setting(_LONG, 0, at_least(0), _LOW,
        "The time from the first request on to resolve the name of an address in `bootstrap.servers`; then calls fail. 0: no bound of its own. Names are never resolved when a client is made, unlike in Java clients.")
    client_id: str = setting(_STRING, "", None, _MEDIUM,
        "A name for this client in the brokers' logs and quotas.")
    request_timeout_ms: int = setting(_INT, 30_000, at_least(0), _MEDIUM,
        "The time that a response may take before the request counts as lost.")
    retry_backoff_ms: int = setting(_LONG, 100, at_least(0), _LOW,
        "The first wait before a failed request is sent again; it doubles up to `retry.backoff.max.ms`.")
    retry_backoff_max_ms: int = setting(_LONG, 1000, at_least(0), _LOW,
        "The longest wait before a failed request is sent again.")
    reconnect_backoff_ms: int = setting(_LONG, 50, at_least(0), _LOW,
        "The first wait before a broker that could not be reached is tried again; it doubles up to `reconnect.backoff.max.ms`.")
    reconnect_backoff_max_ms: int = setting(_LONG, 1000, at_least(0), _LOW,
        "The longest wait before a broker that could not be reached is tried again.")
    socket_connection_setup_timeout_ms: int = setting(_LONG, 10_000, at_least(0), _MEDIUM,
        "The time that a connection may take to be made; it doubles up to `socket.connection.setup.timeout.max.ms`.")
    socket_connection_setup_timeout_max_ms: int = setting(_LONG, 30_000, at_least(0), _MEDIUM,
        "The longest that a connection may take to be made after several failures.")
    connections_max_idle_ms: int = setting(_LONG, 540_000, None, _MEDIUM,
        "A connection without a request for this long is closed; negative: never.")
    metadata_max_age_ms: int = setting(_LONG, 300_000, at_least(0), _LOW,
        "Metadata of topics and brokers is refreshed after this long, also if nothing failed.")
    metadata_recovery_rebootstrap_trigger_ms: int = setting(_LONG, 300_000, at_least(0), _LOW,
        "Without fresh metadata for this long the client begins again from `bootstrap.servers`.")
    send_buffer_bytes: int = setting(_INT, 131_072, at_least(-1), _MEDIUM,
        "SO_SNDBUF; -1 leaves the system's.")
    receive_buffer_bytes: int = setting(_INT, 65_536, at_least(-1), _MEDIUM,
        "SO_RCVBUF; -1 leaves the system's.")
    metadata_recovery_strategy: str = setting(_STRING, "rebootstrap", OneOf("rebootstrap", "none"), _LOW,
        "The reaction when no known broker can be reached: begin again from `bootstrap.servers`, or keep trying.", case="lower")
    metadata_cluster_check_enable: bool = setting(_BOOLEAN, True, None, _LOW,
        "Whether a broker that is connected to is asked if it is the one of the cluster that the metadata name (from Kafka 4.4 on). If not, the client begins again from `bootstrap.servers`; without effect with `metadata.recovery.strategy=none`.")
    security_protocol: str = setting(_STRING, "PLAINTEXT", OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), _MEDIUM,
        "The protocol of connections: plain TCP or TLS (SSL), with or without SASL authentication.", case="upper")
    ssl_truststore_location: str | None = setting(_STRING, None, None, _HIGH,
        "PEM file of the certificates that are trusted. Unset, with `ssl.truststore.certificates` unset too: the system's.")
    ssl_truststore_certificates: str | None = setting(_PASSWORD, None, None, _HIGH,
        "The trusted certificates themselves, in PEM.")
    ssl_truststore_type: str = setting(_STRING, "PEM", OneOf("PEM"), _MEDIUM,
        "Only PEM is read. `keytool` and `openssl pkcs12` convert from JKS and PKCS12.")
    ssl_keystore_location: str | None = setting(_STRING, None, None, _HIGH,
        "PEM file of this client's certificate chain and private key.")
    ssl_keystore_certificate_chain: str | None = setting(_PASSWORD, None, None, _HIGH,
        "This client's certificate chain itself, in PEM.")
    ssl_keystore_key: str | None = setting(_PASSWORD, None, None, _HIGH,
        "This client's private key itself, in PEM.")
    ssl_keystore_type: str = setting(_STRING, "PEM", OneOf("PEM"), _MEDIUM,
        "Only PEM is read. `openssl pkcs12` converts from PKCS12.")
    ssl_key_password: str | None = setting(_PASSWORD, None, None, _HIGH,
        "The password of the private key.")
    ssl_endpoint_identification_algorithm: str = setting(_STRING, "https", OneOf("https", ""), _LOW,
        "`https`: the broker's certificate must carry the name that was connected to. Empty: any name will do, which lets anyone with a trusted certificate stand in for the broker.")
    ssl_enabled_protocols: tuple[str, ...] = setting(_LIST, ("TLSv1.2", "TLSv1.3"), OneOf("TLSv1.2", "TLSv1.3"), _MEDIUM,
        "Versions of TLS that may be spoken.")
    ssl_cipher_suites: tuple[str, ...] = setting(_LIST, (), None, _LOW,
        "Cipher suites for TLS 1.2, by OpenSSL's names. Empty: OpenSSL's choice.")
    ssl_context: Any = setting(_CLASS, None, None, _MEDIUM,
        "An `ssl.SSLContext` that is used as it is; all other `ssl.` settings are then without effect. Not a setting of Kafka.")
    sasl_mechanism: str | None = setting(_STRING, None, OneOf("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"), _MEDIUM,
        "The mechanism by which the client proves who it is. Kafka's default, GSSAPI (Kerberos), is not supported: with SASL it must be set.", case="upper")
    sasl_username: str | None = setting(_STRING, None, None, _MEDIUM,
        "The user for PLAIN and SCRAM. Kafka's Java clients have it in `sasl.jaas.config` only.")
    sasl_password: str | None = setting(_PASSWORD, None, None, _MEDIUM,
        "The password for PLAIN and SCRAM. Kafka's Java clients have it in `sasl.jaas.config` only.")
    sasl_jaas_config: str | None = setting(_PASSWORD, None, None, _MEDIUM,
        "User and password as Kafka's Java clients write them: a PlainLoginModule or ScramLoginModule.")
    sasl_oauthbearer_token_provider: Callable[[], str] | None = setting(_CLASS, None, None, _MEDIUM,
        "For OAUTHBEARER: called without arguments for each authentication, returns the token. Not a setting of Kafka.")
    # fmt: on

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    def _completed(self, values: dict[str, Any], given: Mapping[str, object]) -> list[str]:
        if not any(values["bootstrap.servers"]):
            raise UsageError("bootstrap.servers is empty; give at least one address, such as localhost:9092")
        for bound in ("retry.backoff", "reconnect.backoff", "socket.connection.setup.timeout"):
            # a first wait above the longest one means that every wait is that long
            values[f"{bound}.ms"] = min(values[f"{bound}.ms"], values[f"{bound}.max.ms"])
        if values["sasl.jaas.config"] is not None:
            from barnabas.client.settings.jaas import parse_jaas

            user, password = parse_jaas(values["sasl.jaas.config"])
            if not {"sasl.username", "sasl.password"} & given.keys():
                values["sasl.username"], values["sasl.password"] = user, password
        if values["security.protocol"].startswith("SASL_"):
            _check_sasl(values)
        return _unused_security(values["security.protocol"], given)


def _check_sasl(values: Mapping[str, Any]) -> None:
    mechanism = values["sasl.mechanism"]
    protocol = f"security.protocol={values['security.protocol']}"
    if mechanism is None:
        raise UsageError(f"{protocol} needs sasl.mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
    needed = ("sasl.oauthbearer.token.provider",) if mechanism == "OAUTHBEARER" else ("sasl.username", "sasl.password")
    missing = [name for name in needed if values[name] is None]
    if missing:
        raise UsageError(f"sasl.mechanism={mechanism} needs {' and '.join(missing)}")


def _unused_security(protocol: str, given: Mapping[str, object]) -> list[str]:
    """Returns a warning for security settings without effect, such as a password without a protocol that sends it."""
    unused = [
        name
        for name in sorted(given)
        if (name.startswith("ssl.") and not protocol.endswith("SSL"))
        or (name.startswith("sasl.") and not protocol.startswith("SASL_"))
    ]
    return [f"security.protocol is {protocol}, so {', '.join(unused)} has no effect"] if unused else []
