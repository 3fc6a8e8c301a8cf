"""`max.connections.per.ip.overrides`: how many connections single addresses may hold, other than all the rest."""

from barnabas.errors import UsageError

__all__ = ["parse_overrides"]


def parse_overrides(text: str) -> dict[str, int]:
    """host:count, separated by commas; an empty text is no override. Raises UsageError."""
    overrides: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        host, colon, count = item.rpartition(":")
        if not (colon and host.strip() and count.strip().isdecimal() and count.strip().isascii()):
            raise UsageError(
                f"max.connections.per.ip.overrides: '{item}' is not of the form host:count, such as 10.0.0.7:100"
            )
        overrides[host.strip()] = int(count)
    return overrides
