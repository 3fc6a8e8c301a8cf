"""The options that commands share, and the settings and clients that they stand for."""

import os
from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

from barnabas import Admin
from barnabas.cli.framework.app import Option
from barnabas.errors import UsageError

__all__ = [
    "CLIENT_ID",
    "DEFAULT_BOOTSTRAP",
    "DEFAULT_CLUSTER",
    "DEFAULT_TIMEOUT_S",
    "Bootstrap",
    "Client",
    "Cluster",
    "Json",
    "Profile",
    "Timeout",
    "parse_partitions",
    "parse_settings",
]

CLIENT_ID: Final = "barnabas-cli"
PARTITIONS_MAX: Final = 100_000
"""The most partitions in one range."""
DIGITS_MAX: Final = 10
"""The most digits of a partition's number, an int32."""
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S: Final = 30.0
CONNECT_MIN_S: Final = 1.0
CONNECT_TIMEOUT_S: Final = 10.0
CONNECT_SHARE: Final = 0.3
"""The share of the timeout in which a connection has to be made: after a broker that hangs others are tried."""
LEFT_SHARE: Final = 0.3
"""The least share of the timeout that the later steps of a command have, which may go on for long."""
BOOTSTRAP: Final = "bootstrap.servers"
REGISTRY_PREFIX: Final = "schema.registry."
BOOTSTRAP_VARIABLE: Final = "BARNABAS_BOOTSTRAP"
CLIENT_CONFIG_VARIABLE: Final = "BARNABAS_CLIENT_CONFIG"
PROFILE_VARIABLE: Final = "BARNABAS_PROFILE"

Bootstrap = Annotated[
    str | None,
    Option(
        "--bootstrap",
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help=f"Addresses of one or more brokers. Environment: {BOOTSTRAP_VARIABLE}. Default: {DEFAULT_BOOTSTRAP}.",
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
        help="Give up after this time, retries included.",
    ),
]
Client = Annotated[
    list[str] | None,
    Option(
        "--client-setting",
        "-X",
        metavar="NAME=VALUE|FILE",
        takes_bytes=True,
        help="A client's setting, such as security.protocol=SSL, or a file of them; repeat for more."
        f" Environment: {CLIENT_CONFIG_VARIABLE} names such a file, too.",
    ),
]
Profile = Annotated[
    str | None,
    Option(
        "--profile",
        metavar="NAME",
        help=f"A named file of client settings; `barnabas profiles` lists them. Environment: {PROFILE_VARIABLE}.",
    ),
]


class Cluster(NamedTuple):
    """The options that say which cluster a command talks to, and how."""

    bootstrap: Bootstrap = None
    timeout: Timeout = DEFAULT_TIMEOUT_S
    client: Client = None
    profile: Profile = None

    def settings(self) -> dict[str, object]:
        """Returns the settings of every client of a command. A wrong address is reported at once, not after retries.

        Raises UsageError, also for a file that cannot be read.
        """
        given = {name: value for name, value in self._given().items() if not name.startswith(REGISTRY_PREFIX)}
        return {
            BOOTSTRAP: DEFAULT_BOOTSTRAP,
            "bootstrap.timeout.ms": 0,
            "client.id": CLIENT_ID,
            "socket.connection.setup.timeout.ms": int(self._connect_timeout_s() * 1000),
            **given,
        }

    def registry_settings(self) -> dict[str, str]:
        """Returns the given settings of a schema registry, without their prefix. Raises as `settings` does."""
        given = self._given().items()
        return {name.removeprefix(REGISTRY_PREFIX): value for name, value in given if name.startswith(REGISTRY_PREFIX)}

    def after(self, seconds: float) -> "Cluster":
        """Returns the options with the time that is left after the first steps of a command have taken `seconds`."""
        return self._replace(timeout=max(self.timeout - seconds, self.timeout * LEFT_SHARE))

    def address(self) -> str:
        """Returns the bootstrap addresses. Raises as `settings` does."""
        return str(self.settings()[BOOTSTRAP])

    def admin(self, *, beside_another: bool = False) -> Admin:
        """Returns an administrator, which connects at its first use. With `beside_another` client, whose settings are
        given too, it ignores those that it does not know. Raises as `settings` does."""
        settings = self.settings()
        if beside_another:
            from barnabas.client.settings import AdminSettings

            known = AdminSettings.definitions.names()
            settings = {name: value for name, value in settings.items() if name in known}
        return Admin({"default.api.timeout.ms": int(self.timeout * 1000), **settings})

    def _connect_timeout_s(self) -> float:
        """Returns the timeout of one connection. It ends before that of the command, which can then name its reason."""
        return min(max(self.timeout * CONNECT_SHARE, CONNECT_MIN_S), CONNECT_TIMEOUT_S, self.timeout * 0.9)

    def _given(self) -> dict[str, str]:
        """Returns the given settings by name. The command line wins over the environment; in each of them the address
        by its own option or variable wins over -X, and that over a profile. A profile on the command line replaces the
        profile and the file of the environment."""
        given = _profile_settings(self.profile) if self.profile is not None else _environment_settings()
        if address := os.environ.get(BOOTSTRAP_VARIABLE):
            given = {BOOTSTRAP: address, **given} if self.profile is not None else {**given, BOOTSTRAP: address}
        for text in self.client or ():
            given.update(parse_settings([text], "-X") if "=" in text else _file_settings(text))
        if self.bootstrap is not None:
            given[BOOTSTRAP] = self.bootstrap
        return given


DEFAULT_CLUSTER: Final = Cluster()


def _environment_settings() -> dict[str, str]:
    """Returns the settings of the file and the profile that environment variables name."""
    found: dict[str, str] = {}
    if file := os.environ.get(CLIENT_CONFIG_VARIABLE):
        found.update(_file_settings(file))
    if profile := os.environ.get(PROFILE_VARIABLE):
        found.update(_profile_settings(profile))
    return found


def _profile_settings(name: str) -> dict[str, str]:
    from barnabas.cli.framework.profile_files import profile_file

    return _file_settings(profile_file(name))


def _file_settings(path: str) -> dict[str, str]:
    from barnabas.config.sources import read_properties

    return read_properties(path)


def parse_settings(pairs: Iterable[str], option: str) -> dict[str, str]:
    """Parses `name=value` pairs. Raises UsageError."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {pair}: must be NAME=VALUE, such as {option} retention.ms=3600000")
        found[name.strip()] = value.strip()
    return found


def parse_partitions(text: str) -> list[int]:
    """Parses `0,2,5-7` to partition numbers. Raises UsageError."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or max(len(first), len(last)) > DIGITS_MAX:
            raise UsageError(f"partitions {text!r}: write numbers and ranges, such as 0,2,5-7")
        if int(last or first) < int(first):
            raise UsageError(f"partitions {text!r}: a range begins with its lower number, such as 5-7")
        if int(last or first) - int(first) >= PARTITIONS_MAX:
            raise UsageError(f"partitions {text!r}: a range has at most {PARTITIONS_MAX} partitions")
        found += range(int(first), int(last or first) + 1)
    return found
