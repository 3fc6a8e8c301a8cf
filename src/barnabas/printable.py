"""Makes texts from clients, such as group ids, client ids and reasons, fit for a log line or a terminal, and tells
which texts are fit to be sent or kept."""

import codecs
import re
from typing import Final

__all__ = ["is_text", "printable", "printable_json"]

_CONTROL: Final = re.compile("[\x7f-\x9f\ud800-\udfff]")
"""Control characters that JSON leaves unescaped, and that terminals interpret; and lone surrogates, which cannot be
written: Python has them for the bytes of a file's name that are not UTF-8."""

_escaped = codecs.getencoder("unicode_escape")
"""Looked up here: who wants to log that there are no descriptors left has none for the codec's module."""


def printable(text: str) -> str:
    """Returns the text with unprintable characters as backslash escapes: line ends, which could fake a line of the log,
    terminals' escape sequences, and marks that change the direction of writing."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character)[0].decode() for character in text)


def printable_json(text: str) -> str:
    """Returns the JSON text with its control characters as JSON's escapes."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_text(text: str) -> bool:
    """Returns whether a text can be written as UTF-8. Python has a lone surrogate for each byte of a command line, of
    an environment variable or of a file's name that cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
