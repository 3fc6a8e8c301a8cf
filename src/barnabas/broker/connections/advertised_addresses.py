"""Finds the addresses under which clients reach brokers: `advertised.listeners`, or `advertise` with the address of the
client's connection.

An advertised name that does not lead back to this machine is the commonest reason why a client connects once and then
never again. The broker cannot know for certain (a port may be forwarded), so it only warns at the start.
"""

import errno
import socket
from collections.abc import Callable
from typing import Final

from barnabas.config.advertise import AdvertiseRules, container_gateway
from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import WILDCARDS, Endpoint
from barnabas.metadata.image import MetadataImage
from barnabas.network.connection import RequestConnection

__all__ = ["AdvertisedAddresses", "NamedBroker", "advertised_names", "problem_with", "with_host_name"]

NamedBroker = tuple[int, str, int, str | None]
"""Node id, host, port and rack."""


class AdvertisedAddresses:
    """Made when the listeners are open: `endpoints` are those of this broker, with their real ports."""

    __slots__ = ("_by_listener", "_fixed", "_node_id", "_rules")

    def __init__(
        self, config: BrokerConfig, endpoints: tuple[Endpoint, ...], gateway: Callable[[], str | None] | None = None
    ) -> None:
        self._node_id = config.node_id
        self._fixed = bool(config.advertised_endpoints)
        self._by_listener: Final = {endpoint.name: endpoint for endpoint in endpoints}
        self._rules = AdvertiseRules(config.advertise, (gateway or container_gateway)())

    def brokers(
        self, image: MetadataImage, connection: RequestConnection, *, include_fenced: bool = False
    ) -> list[NamedBroker]:
        """Returns the live brokers for a client of this connection. Brokers without an address on the connection's
        listener are left out: the client could not reach them."""
        found: list[NamedBroker] = []
        for broker in image.brokers.values():
            if broker.fenced and not include_fenced:
                continue
            if broker.node_id == self._node_id and not self._fixed:
                host, port = self._rules.address(
                    self._by_listener[connection.listener_name],
                    connection.peer_host,
                    connection.local_host,
                    connection.local_port,
                )
                found.append((broker.node_id, host, port, broker.rack))
                continue
            found += [
                (broker.node_id, *self._of_another(endpoint, connection), broker.rack)
                for endpoint in broker.endpoints
                if endpoint.name == connection.listener_name
            ]
        return found

    def _of_another(self, endpoint: Endpoint, connection: RequestConnection) -> tuple[str, int]:
        """Returns host and port of another broker. One that has registered every interface is on this machine, since
        the brokers share a file: the client reaches it where it has reached this one."""
        if endpoint.host not in WILDCARDS:
            return endpoint.host, endpoint.port
        return self._rules.address(endpoint, connection.peer_host, connection.local_host, endpoint.port)


def with_host_name(endpoint: Endpoint) -> Endpoint:
    """Returns the endpoint as other machines reach it: with the full name of this machine in the place of every
    interface. Blocks: it asks the DNS."""
    if endpoint.host not in WILDCARDS:
        return endpoint
    name = socket.getfqdn()
    if name.partition(".")[0] == "localhost":  # /etc/hosts gives the machine's name to the loopback interface
        name = socket.gethostname()
    return endpoint._replace(host=name)


def advertised_names(config: BrokerConfig) -> list[tuple[str, str]]:
    """Returns setting and host of every advertised name."""
    if config.advertised_endpoints:
        return [("advertised.listeners", endpoint.host) for endpoint in config.advertised_endpoints]
    return [("advertise", host) for host in AdvertiseRules(config.advertise).hosts]


def problem_with(setting: str, host: str) -> str | None:
    """Returns a warning if clients may not reach this broker under the advertised name. Blocks: it asks the DNS."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return (
            f"{setting}: clients are told {host}, which cannot be resolved here; "
            "make sure that they can, or advertise another name"
        )
    addresses = sorted({str(entry[4][0]) for entry in found})
    if any(_is_ours(address) for address in addresses):
        return None
    return (
        f"{setting}: clients are told {host}, which is {', '.join(addresses)}: no address of this machine; "
        "they come back here only if that address forwards to this one"
    )


def _is_ours(address: str) -> bool:
    """Returns whether the address is one of this machine: only then can a socket be bound to it. No packet is sent."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True
