"""Texts that others chose, such as group ids, client ids and reasons, made fit for a log line or a terminal."""

import re
from typing import Final

__all__ = ["printable", "printable_json"]

_CONTROL: Final = re.compile("[\x7f-\x9f]")
"""Control characters that JSON leaves as they are, and that terminals obey."""


def printable(text: str) -> str:
    """Returns the text with what is not printable as backslash escapes: line ends, which would begin a line that looks
    like one of ours, terminals' escape sequences, and marks that change the direction of writing."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def printable_json(text: str) -> str:
    """Returns the JSON text with the control characters in it as JSON's escapes: it says the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
