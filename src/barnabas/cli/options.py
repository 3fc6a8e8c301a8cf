"""Options that commands share, and what they turn into."""

import os
from collections.abc import Iterable
from typing import Annotated, Final

from barnabas import Admin
from barnabas.cli.app import Option
from barnabas.errors import UsageError

__all__ = [
    "CLIENT_ID",
    "Bootstrap",
    "Client",
    "Json",
    "Timeout",
    "client_settings",
    "connect_admin",
    "parse_partitions",
    "parse_settings",
]

CLIENT_ID: Final = "barnabas-cli"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 10.0
CLIENT_CONFIG: Final = "BARNABAS_CLIENT_CONFIG"

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


Client = Annotated[
    list[str] | None,
    Option(
        "--client-setting",
        "-X",
        metavar="NAME=VALUE|FILE",
        help="A client's setting, such as security.protocol=SSL, or a file of them; repeat for more."
        f" {CLIENT_CONFIG} in the environment names such a file, too.",
    ),
]


def client_settings(bootstrap: str, timeout: float, client: Iterable[str] | None = None) -> dict[str, object]:
    """What every client of a command is told. Who typed a wrong address shall not have to wait to hear so."""
    given = _given(client or ())
    if bootstrap != DEFAULT_BOOTSTRAP:
        given.pop("bootstrap.servers", None)
    return {
        "bootstrap.servers": bootstrap,
        "bootstrap.timeout.ms": 0,
        "client.id": CLIENT_ID,
        "socket.connection.setup.timeout.ms": int(min(CONNECT_TIMEOUT_S, timeout * 0.9) * 1000),
        **given,
    }


def _given(client: Iterable[str]) -> dict[str, object]:
    """By name; what comes later wins. Raises UsageError."""
    found: dict[str, object] = {}
    configured = os.environ.get(CLIENT_CONFIG)
    for text in [configured, *client] if configured else client:
        if "=" in text:
            found.update(parse_settings([text], "-X"))
        else:
            from barnabas.config.sources import parse_properties

            with open(text, encoding="utf-8") as file:
                found.update(parse_properties(file.read()))
    return found


def connect_admin(
    bootstrap: str, timeout: float, client: Iterable[str] | None = None, *, beside_another: bool = False
) -> Admin:
    """Connects at first use. `beside_another` client, whose settings are among these, it takes what it knows.

    Raises UsageError for an address or a setting that is none.
    """
    settings = client_settings(bootstrap, timeout, client)
    if beside_another:
        from barnabas.client.core.settings import AdminSettings

        known = AdminSettings.definitions.names()
        settings = {name: value for name, value in settings.items() if name in known}
    return Admin({"default.api.timeout.ms": int(timeout * 1000), **settings})


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
