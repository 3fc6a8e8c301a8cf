"""The names of the files that a cleaning makes."""

from typing import Final

from barnabas.types import Offset

__all__ = ["CLEANED_SUFFIX", "SWAP_SUFFIX", "cleaned_path", "is_ours", "offset_of"]

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"


def cleaned_path(directory: str, base_offset: Offset, suffix: str, token: str) -> str:
    """`00000000000000000042.log.<token>.cleaned`: a process that lost its broker and its successor must not write into
    the same file. Kafka takes such files for its own `.log.cleaned` and removes them when it starts."""
    return f"{directory}/{base_offset:020d}{suffix}.{token}{CLEANED_SUFFIX}"


def is_ours(name: str) -> bool:
    """Whether a `.cleaned` file has a token in its name."""
    return name.count(".") > 2


def offset_of(name: str) -> Offset | None:
    """The offset that a file of a segment is named after; None for other files."""
    stem = name.partition(".")[0]
    return Offset(int(stem)) if stem.isascii() and stem.isdigit() else None
