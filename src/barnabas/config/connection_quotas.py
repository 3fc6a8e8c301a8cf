"""Parses `max.connections.per.ip.overrides`, the connection limits of single addresses."""

from barnabas.errors import UsageError

__all__ = ["parse_overrides"]


def parse_overrides(text: str) -> dict[str, int]:
    """Parses host:count, separated by commas. Raises UsageError."""
    overrides: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        host, colon, count = item.rpartition(":")
        if not (colon and host.strip() and count.strip().isdecimal() and count.strip().isascii()):
            raise UsageError(
                f"max.connections.per.ip.overrides: '{item}' is not of the form host:count, such as 10.0.0.7:100"
            )
        overrides[host.strip()] = int(count)
    return overrides
