"""The names of the files that a cleaning makes."""

from typing import Final

from barnabas.types import Offset

__all__ = ["CLEANED_SUFFIX", "SWAP_SUFFIX", "cleaned_path", "is_ours", "offset_of"]

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"


def cleaned_path(directory: str, base_offset: Offset, suffix: str, token: str) -> str:
    """Returns `00000000000000000042.log.<token>.cleaned`: a process that lost its broker must not write into the file
    of its successor. Kafka removes such files at its start like its own."""
    return f"{directory}/{base_offset:020d}{suffix}.{token}{CLEANED_SUFFIX}"


def is_ours(name: str) -> bool:
    """Returns whether a `.cleaned` file has a token in its name."""
    return name.count(".") > 2


def offset_of(name: str) -> Offset | None:
    """Returns the offset in the name of a segment's file; None for other files."""
    stem = name.partition(".")[0]
    return Offset(int(stem)) if stem.isascii() and stem.isdigit() else None
