"""Starts processes that end with their parent, whatever ends it: no process is left when pytest is killed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

__all__ = ["attached"]


def attached(command: Sequence[str]) -> list[str]:
    """Returns the command with a prefix that makes the kernel kill it when the thread that started it ends. The thread
    must therefore live as long as the process is needed. Returns the command alone where setpriv (util-linux) is
    missing."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]
