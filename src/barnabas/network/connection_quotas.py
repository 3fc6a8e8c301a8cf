"""Quotas of single addresses, given by host name: resolved once, at the start."""

import socket

from barnabas.errors import UsageError

__all__ = ["resolve_overrides"]


def resolve_overrides(overrides: dict[str, int]) -> dict[str, int]:
    """By address, as connections show it. Asks the DNS for what is not an address; unknown names raise UsageError."""
    resolved: dict[str, int] = {}
    for host, count in overrides.items():
        try:
            found = socket.getaddrinfo(host.removeprefix("[").removesuffix("]"), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise UsageError(f"max.connections.per.ip.overrides: {host} cannot be resolved; give an address") from None
        resolved.update((str(entry[4][0]), count) for entry in found)
    return resolved
