"""Reads the addresses that users write, and recognizes other protocols than Kafka's at an address."""

from collections.abc import Iterable
from typing import Final

from barnabas.errors import UsageError

__all__ = ["RESPONSE_SIZE_MAX", "foreign_protocol", "parse_bootstrap", "split_address"]

RESPONSE_SIZE_MAX: Final = 512 * 1024 * 1024
"""The most bytes of a response, far above any fetch.max.bytes: a peer that claims more does not speak Kafka."""


def split_address(address: str, default_port: int = 9092) -> tuple[str, int]:
    """Returns host and port of `host:port`, `host` or `[::1]:9092`. Raises ValueError with a text of one line."""
    text = address.strip()
    if "://" in text:
        text = text.split("://", 1)[1]
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port_text = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port_text = text, ""
    else:
        host, _, port_text = text.partition(":")
    if not host:
        raise ValueError(f"address {address!r} has no host; write HOST:PORT")
    if not port_text:
        return host, default_port
    if not port_text.isdecimal() or not 0 < int(port_text) < 65536:
        raise ValueError(f"address {address!r} has port {port_text!r}; a port is a number from 1 to 65535")
    return host, int(port_text)


def foreign_protocol(data: bytes) -> str:
    """Returns a sentence about the protocol that the first bytes of an answer look like, or an empty string."""
    if data[:1] in (b"\x15", b"\x16") and data[1:2] == b"\x03":
        return "the port speaks TLS, this client sent plaintext: set security.protocol=SSL (or SASL_SSL)"
    if data[:5] == b"HTTP/" or data[:1] == b"<":
        return "the port answers HTTP"
    if data[:4] == b"SSH-":
        return "the port answers SSH"
    if data[:4] in (b"220 ", b"220-"):
        return "the port answers like an FTP or mail server"
    if data[:1] in (b"-", b"+") and b"\r\n" in data[:64]:
        return "the port answers like Redis"
    return ""


def parse_bootstrap(bootstrap: str | Iterable[str]) -> list[tuple[str, int]]:
    """Returns hosts and ports of `"a:9092,b:9092"` or of a list of addresses. Raises UsageError."""
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    try:
        addresses = [split_address(part) for part in parts if part.strip()]
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not addresses:
        raise UsageError("no bootstrap address is given; write HOST:PORT[,HOST:PORT...]")
    return addresses
