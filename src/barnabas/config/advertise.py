"""`advertise`: the address that a client gets if `advertised.listeners` is not set.

A broker cannot know under which address clients reach it: localhost, the host's name, or a container's published port.
But each connection shows an address that worked, the one on which it arrived. So the client gets that address. Two
cases need more: networks that translate addresses (rules by the client's network), and a published port of the
container that the broker runs in, where connections come from the container's gateway and only `localhost` leads back
in.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.config.endpoints import WILDCARDS, Endpoint
from barnabas.errors import UsageError

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

__all__ = ["AUTO", "LISTENERS", "AdvertiseRules", "container_gateway"]

AUTO: Final = "auto"
LISTENERS: Final = "listeners"


class AdvertiseRules:
    """The parsed setting. Raises UsageError for an invalid rule."""

    def __init__(self, rules: Sequence[str], gateway: str | None = None) -> None:
        """`gateway` is that of `container_gateway`; None outside of containers."""
        self._auto = True
        self._gateway = gateway
        self._networks: list[tuple[IPv4Network | IPv6Network, str, int]] = []
        for rule in rules:
            if rule in (AUTO, LISTENERS):
                self._auto = rule == AUTO
            else:
                self._networks.append(_parse(rule))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names in the rules."""
        return tuple(dict.fromkeys(host for _, host, _ in self._networks))

    def address(self, endpoint: Endpoint, client_host: str, local_host: str, local_port: int) -> tuple[str, int]:
        """Returns host and port for a client at `client_host`, whose connection to `endpoint` arrived at (`local_host`,
        `local_port`)."""
        client_host, local_host = _plain(client_host), _plain(local_host)
        if self._networks:
            from ipaddress import ip_address

            address = ip_address(client_host.partition("%")[0])
            for network, host, port in self._networks:
                if address.version == network.version and address in network:
                    return host, port or local_port
        if not self._auto and endpoint.host not in WILDCARDS:
            return endpoint.host, local_port
        if self._gateway is not None and client_host == self._gateway:
            return "localhost", local_port
        return local_host, local_port


def _parse(rule: str) -> "tuple[IPv4Network | IPv6Network, str, int]":
    from ipaddress import ip_network

    network, equals, address = rule.partition("=")
    host, port = _host_and_port(address.strip())
    try:
        parsed = ip_network(network.strip(), strict=False)
    except ValueError:
        parsed = None
    if not equals or not host or parsed is None or not 0 <= port < 65536:
        raise UsageError(
            f"advertise: '{rule}' is neither auto nor listeners nor a rule such as 10.0.0.0/8=kafka.example.com:9092"
        )
    return parsed, host, port


def _host_and_port(address: str) -> tuple[str, int]:
    """Splits host and port. Port 0 stands for the port of the client's connection. IPv6 addresses with a port are in
    brackets."""
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        port = rest.removeprefix(":")
    elif address.count(":") == 1:
        host, _, port = address.partition(":")
    else:
        host, port = address, ""
    if not port:
        return host, 0
    return host, int(port) if port.isascii() and port.isdigit() else -1


def _plain(host: str) -> str:
    """Returns 1.2.3.4 for ::ffff:1.2.3.4, an IPv4 client of an IPv6 socket."""
    return host.removeprefix("::ffff:") if "." in host else host


def container_gateway(root: Path = Path("/")) -> str | None:
    """Returns the IPv4 gateway of the container that this process runs in; None outside of Docker and Podman."""
    # a read-only container of Podman hides its file behind another /run
    podman = os.environ.get("container") == "podman" or (root / "run/.containerenv").exists()  # noqa: SIM112
    if not podman and not (root / ".dockerenv").exists():
        return None
    try:
        routes = (root / "proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return None
    for route in routes:
        fields = route.split()
        if len(fields) > 2 and fields[1] == "00000000" and len(fields[2]) == 8:
            octets = bytes.fromhex(fields[2])[::-1]  # the kernel shows it in the machine's (little endian) order
            return ".".join(map(str, octets))
    return None
