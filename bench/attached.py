"""Processes that end with the one that started them, whatever ends it: nobody is left behind when pytest is killed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

__all__ = ["attached"]


def attached(command: Sequence[str]) -> list[str]:
    """The command, to be killed by the kernel as soon as the thread that starts it is gone: start it from one that
    lives as long as it is needed. As it is where setpriv (util-linux) is missing."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]
