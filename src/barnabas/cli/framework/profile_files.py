"""Profiles: named files of client settings, such as one for each cluster.

A profile is a file in Java's properties format, as Kafka's own tools take it, named NAME.properties, in
$XDG_CONFIG_HOME/barnabas/profiles (~/.config/barnabas/profiles).
"""

import os
from typing import Final

from barnabas.cli.framework.app import way_out
from barnabas.errors import UsageError

__all__ = ["SUFFIX", "profile_directory", "profile_file", "profile_names"]

SUFFIX: Final = ".properties"


def profile_directory() -> str:
    """Returns the directory of the profiles, which need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "barnabas", "profiles")


def profile_names() -> list[str]:
    """Returns the names of the profiles, sorted."""
    try:
        files = os.listdir(profile_directory())
    except OSError:
        return []
    return sorted(file.removesuffix(SUFFIX) for file in files if file.endswith(SUFFIX) and file != SUFFIX)


def profile_file(name: str) -> str:
    """Returns the file of a profile. Raises UsageError for one that does not exist."""
    names = profile_names()
    if name in names:
        return os.path.join(profile_directory(), name + SUFFIX)
    otherwise = f"write client settings, such as bootstrap.servers=host:9092, to {name}{SUFFIX} there"
    hint = way_out(name, names, f"there are {', '.join(names)}" if names else otherwise)
    raise UsageError(f"--profile {name}: there is no such profile in {profile_directory()}; {hint}")
