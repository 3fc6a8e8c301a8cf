"""Options that commands share, and what they turn into."""

from collections.abc import Iterable
from typing import Annotated, Final

from barnabas.cli.app import Option
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.errors import UsageError

__all__ = [
    "CLIENT_ID",
    "Bootstrap",
    "Json",
    "Timeout",
    "connect",
    "connect_admin",
    "parse_partitions",
    "parse_settings",
]

CLIENT_ID: Final = "barnabas-cli"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S: Final = 30.0

Bootstrap = Annotated[
    str,
    Option(
        "--bootstrap",
        "-b",
        "--bootstrap-server",
        environment="BARNABAS_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Addresses of one or more brokers.",
    ),
]
Json = Annotated[bool, Option("--json", help="Machine-readable output.")]
Timeout = Annotated[
    float,
    Option(
        "--timeout",
        environment="BARNABAS_TIMEOUT",
        metavar="SECONDS",
        minimum=0.1,
        help="Give up after so long, retries included.",
    ),
]


def connect(bootstrap: str, timeout: float) -> Cluster:
    """Raises UsageError for an address that is none; connects at first use."""
    return Cluster(bootstrap, client_id=CLIENT_ID, timeout_s=timeout)


def connect_admin(bootstrap: str, timeout: float) -> Admin:
    return Admin(connect(bootstrap, timeout))


def parse_settings(pairs: Iterable[str], option: str) -> dict[str, str]:
    """`name=value` pairs. Raises UsageError."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {pair}: must be NAME=VALUE, such as {option} retention.ms=3600000")
        found[name.strip()] = value.strip()
    return found


def parse_partitions(text: str) -> list[int]:
    """`0,2,5-7` to partition numbers. Raises UsageError."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"partitions {text!r}: write numbers and ranges, such as 0,2,5-7")
        found += range(int(first), int(last or first) + 1)
    return found
