"""Options that commands share, and what they turn into."""

from collections.abc import Iterable
from typing import Annotated, Final

import typer

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
    "new_app",
    "parse_partitions",
    "parse_settings",
]

CLIENT_ID: Final = "barnabas-cli"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S: Final = 30.0

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        "--bootstrap-server",
        envvar="BARNABAS_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Addresses of one or more brokers.",
        show_envvar=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Give up after so long, retries included.")
]


def new_app(summary: str) -> typer.Typer:
    """A typer app without rich's dressing: its import alone would cost half of a command's time."""
    return typer.Typer(
        help=summary,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


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
