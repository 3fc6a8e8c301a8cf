"""The fenced blocks of a page, for tests that run what the documentation shows."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["FILE_NAME", "ROOT", "Block", "blocks_of", "environment_in"]

ROOT = Path(__file__).parents[1]

FILE_NAME = re.compile(r"# (\w+\.(?:properties|py|sh))\n")
"""The first line of a block that is to be saved under that name."""

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    text: str
    section: str
    """The nearest heading above the block."""
    line: int
    """The line of the page on which the block begins."""

    @property
    def commands(self) -> list[str]:
        """The commands of a console block, without the prompt."""
        return [line.removeprefix("$ ") for line in self.text.splitlines()]


def blocks_of(page: str) -> list[Block]:
    """Returns the blocks of a page, in its order. `page`: its path in the repository."""
    text = (ROOT / page).read_text()
    found = []
    for match in _FENCED.finditer(text):
        above = text[: match.start()]
        headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", above), re.MULTILINE)
        found.append(Block(match[1], match[2], headings[-1] if headings else "", above.count("\n") + 2))
    return found


def environment_in(directory: Path, servers: str) -> dict[str, str]:
    """Returns the environment for commands that a page shows: they find `barnabas`, `pytest`, and the brokers."""
    commands = directory / "bin"
    commands.mkdir()
    for module in ("barnabas", "pytest"):
        command = commands / module
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
        command.chmod(0o755)
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("BARNABAS_", "PYTEST_"))}
    return {**clean, "PATH": f"{commands}:{os.environ['PATH']}", "BARNABAS_BOOTSTRAP": servers}
