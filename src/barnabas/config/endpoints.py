"""The addresses on which a broker listens, and those that it advertises to clients.

Kafka calls both a listener; an Endpoint here is one of them: name, protocol, host, port.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.errors import UsageError

__all__ = [
    "SASL_PLAINTEXT",
    "WILDCARDS",
    "Endpoint",
    "endpoint_beside",
    "entry_for_brokers",
    "parse_endpoint",
    "parse_endpoints",
    "parse_protocol_map",
]

PLAINTEXT = "PLAINTEXT"
SASL_PLAINTEXT = "SASL_PLAINTEXT"
"""The protocol between brokers, which authenticate to each other and do not encrypt."""

WILDCARDS: Final = frozenset(("", "0.0.0.0", "::"))
"""Hosts that mean every interface: one can listen there, not connect to it."""


class Endpoint(NamedTuple):
    """One address of a broker. An empty host means every interface (listeners) and is never advertised."""

    name: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{_address(self.host, self.port)}"

    @property
    def text(self) -> str:
        """The endpoint in the registry and in messages between brokers."""
        return f"{self.security_protocol}|{self}"

    @classmethod
    def of_text(cls, text: str) -> "Endpoint":
        """Returns the endpoint with this `text`. Raises ValueError."""
        protocol, _, address = text.partition("|")
        name, _, rest = address.partition("://")
        host, _, port = rest.rpartition(":")
        return cls(name, protocol, host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def local_address(self) -> str:
        """`host:port` for clients on the same machine, as `advertise=auto` gives it to them."""
        loopback = "::1" if self.host == "::" else "127.0.0.1"
        return _address(loopback if self.host in WILDCARDS else self.host, self.port)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parses `listener.security.protocol.map` to the protocol of each listener name. Raises UsageError."""
    protocols: dict[str, str] = {}
    for item in text.split(","):
        name, colon, protocol = item.strip().partition(":")
        if not colon:
            raise UsageError(f"listener.security.protocol.map: '{item.strip()}' is not of the form NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_endpoint(setting: str, text: str, protocols: dict[str, str], served: str = PLAINTEXT) -> Endpoint:
    """Parses one NAME://host:port. Raises UsageError with the setting, the rule and a remedy."""
    name, scheme, address = text.strip().partition("://")
    host, colon, port_text = address.rpartition(":")
    if not (scheme and colon and port_text.isdecimal() and int(port_text) < 65536):
        raise UsageError(f"{setting}: '{text}' is not of the form NAME://host:port, such as PLAINTEXT://127.0.0.1:9092")
    name = name.upper()
    protocol = protocols.get(name)
    if protocol is None:
        raise UsageError(
            f"{setting}: '{text}' has a name without protocol; add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    if protocol != served:
        raise UsageError(
            f"{setting}: '{text}' asks for {protocol}, which is not served; only PLAINTEXT listeners can be opened"
        )
    return Endpoint(name, protocol, host.removeprefix("[").removesuffix("]"), int(port_text))


def parse_endpoints(
    setting: str, texts: Iterable[str], protocols: dict[str, str], ignored: Iterable[str] = ()
) -> tuple[Endpoint, ...]:
    """Returns the endpoints of a setting, without those whose name is ignored (Kafka's controller listeners).

    Raises UsageError where a name or a port (other than 0) appears twice, or nothing is left.
    """
    skipped = {name.upper() for name in ignored}
    wanted = [text for text in texts if text.partition("://")[0].strip().upper() not in skipped]
    endpoints = tuple(parse_endpoint(setting, text, protocols) for text in wanted)
    if not endpoints:
        raise UsageError(f"{setting}: no listener for clients; give at least one, such as PLAINTEXT://127.0.0.1:9092")
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise UsageError(f"{setting}: each listener must have a different name, but got {', '.join(names)}")
    ports = [(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port]
    if setting == "listeners" and len(set(ports)) < len(ports):
        raise UsageError(f"{setting}: each listener must have a different address and port")
    return endpoints


def entry_for_brokers(
    setting: str, name: str | None, entries: Iterable[str], protocols: dict[str, str]
) -> Endpoint | None:
    """Returns the entry that is for the cluster's other brokers alone: the one with this name, if the protocol of the
    name is SASL_PLAINTEXT."""
    if name and protocols.get(name) == SASL_PLAINTEXT:
        for text in entries:
            if text.partition("://")[0].strip().upper() == name:
                return parse_endpoint(setting, text, protocols, SASL_PLAINTEXT)
    return None


def endpoint_beside(name: str | None, clients: tuple[Endpoint, ...], *, one_machine: bool) -> Endpoint:
    """Returns an endpoint with a free port for the cluster's other brokers, beside the endpoints of `clients`. On
    `one_machine` it is never one on every interface."""
    by_name = {endpoint.name: endpoint for endpoint in clients}
    host = by_name.get(name or "", clients[0]).host
    free = [each for each in (name, "INTERNAL", "BROKERS") if each and each not in by_name]
    host = "127.0.0.1" if one_machine and host in WILDCARDS else host
    return Endpoint(free[0] if free else "BARNABAS", SASL_PLAINTEXT, host, 0)
