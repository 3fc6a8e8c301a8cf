"""Quotas of single addresses, given by host name."""

import socket
from collections.abc import Mapping

from barnabas.errors import UsageError

__all__ = ["is_address", "resolve_overrides"]


def resolve_overrides(overrides: Mapping[str, int]) -> dict[str, int]:
    """Returns the overrides by IP address. Asks the DNS for host names; unknown ones raise UsageError."""
    resolved: dict[str, int] = {}
    for host, count in overrides.items():
        try:
            found = _addresses(host)
        except (OSError, UnicodeError):
            raise UsageError(f"max.connections.per.ip.overrides: {host} cannot be resolved; give an address") from None
        resolved.update((address, count) for address in found)
    return resolved


def is_address(host: str) -> bool:
    """Returns whether the host is an IP address, which needs no DNS."""
    try:
        return bool(_addresses(host, socket.AI_NUMERICHOST))
    except (OSError, UnicodeError):
        return False


def _addresses(host: str, flags: int = 0) -> list[str]:
    found = socket.getaddrinfo(host.removeprefix("[").removesuffix("]"), None, type=socket.SOCK_STREAM, flags=flags)
    return [str(entry[4][0]) for entry in found]
