"""`barnabas profiles`: named files of client settings, such as one for each cluster.

A profile is a file in Java's properties format, as Kafka's own tools take it, named NAME.properties, in
$XDG_CONFIG_HOME/barnabas/profiles (~/.config/barnabas/profiles).
"""

import os
from typing import Final

from barnabas.cli.app import App, closest
from barnabas.cli.options import BOOTSTRAP, Json
from barnabas.cli.output import print_json, table
from barnabas.errors import UsageError

__all__ = ["profile_file", "profile_names"]

SUFFIX: Final = ".properties"

app = App("List profiles: named files of client settings, used with --profile.", default="list")


def profile_directory() -> str:
    """Where profiles lie, whether it exists or not."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "barnabas", "profiles")


def profile_names() -> list[str]:
    """The profiles that exist, sorted."""
    try:
        files = os.listdir(profile_directory())
    except OSError:
        return []
    return sorted(file.removesuffix(SUFFIX) for file in files if file.endswith(SUFFIX) and file != SUFFIX)


def profile_file(name: str) -> str:
    """The file of a profile. Raises UsageError for one that does not exist."""
    names = profile_names()
    if name in names:
        return os.path.join(profile_directory(), name + SUFFIX)
    close = closest(name, names)
    if close:
        way_out = f"did you mean {close[0]}?"
    elif names:
        way_out = f"there are {', '.join(names)}"
    else:
        way_out = f"write client settings, such as bootstrap.servers=host:9092, to {name}{SUFFIX} there"
    raise UsageError(f"--profile {name}: there is no such profile in {profile_directory()}; {way_out}")


@app.command(
    "list",
    example="barnabas profiles",
    notes="""\
A profile is a file NAME.properties in $XDG_CONFIG_HOME/barnabas/profiles (~/.config/barnabas/profiles) with a
setting on each line, as Kafka's own tools take it with --command-config:

  bootstrap.servers=kafka-1.example.org:9093,kafka-2.example.org:9093
  security.protocol=SASL_SSL
  sasl.mechanism=SCRAM-SHA-256
  sasl.username=me
  sasl.password=secret
  schema.registry.url=https://registry.example.org

Every command that talks to brokers takes --profile NAME. Options on the command line win over the profile.
""",
)
def list_profiles(json: Json = False) -> None:
    """List the profiles with their files and brokers."""
    from barnabas.config.sources import parse_properties

    found = []
    for name in profile_names():
        file = profile_file(name)
        with open(file, encoding="utf-8") as text:
            found.append({"profile": name, "bootstrap": parse_properties(text.read()).get(BOOTSTRAP), "file": file})
    if json:
        print_json(found)
    elif found:
        print(table(("profile", "brokers", "file"), [tuple(row.values()) for row in found]))
    else:
        print(f"no profiles; one is a file NAME{SUFFIX} in {profile_directory()}")
