"""Replaces segments by a cleaned one, and finishes an interrupted replacement after a crash, in Kafka's steps:

1. the `.cleaned` files, whole and synced, become `.swap`, `.log` last;
2. the old segments' files become `.deleted`, to be removed later;
3. the `.swap` files get their final names, `.log` first and `.index` last.

A crash in the first step has changed nothing, all is dropped. Once there is a `.log.swap`, every segment that it
covers is stale, and the next start goes on with step 2. Behind that, an `.index.swap` without an `.index` beside it
says that only names are missing. Kafka renames `.log` first in both steps and tells the first one by the `.cleaned`
files that are left; both ways are finished here, and a directory of ours by Kafka.
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.log.batch_scan import scan_headers
from barnabas.log.cleaner.file_names import CLEANED_SUFFIX, SWAP_SUFFIX, cleaned_path, is_ours, offset_of
from barnabas.log.directories.disk import Disk, fsync_directory
from barnabas.log.log_segment import SEGMENT_SUFFIXES, LogSegment
from barnabas.log.unified_log import UnifiedLog

__all__ = ["cleaned_files", "finish_swaps", "swap_in"]

_TO_SWAP: Final = (".index", ".timeindex", ".txnindex", ".log")
_FROM_SWAP: Final = (".log", ".txnindex", ".timeindex", ".index")

_log = logging.getLogger(__name__)


def swap_in(log: UnifiedLog, old: Sequence[LogSegment], token: str) -> None:
    """Replaces `old` by the cleaned segment with the same base offset.

    Raises OSError if the cleaning's files cannot be renamed, and KafkaStorageError if the process has no descriptors
    left: nothing has changed then. Raises KafkaStorageError if a later step fails: the log then takes no more writes,
    and the next start finishes the work.
    """
    log.require_descriptors()
    base_offset = old[0].base_offset
    cleaned = {suffix: cleaned_path(log.directory, base_offset, suffix, token) for suffix in _TO_SWAP}
    try:
        os.stat(cleaned[".txnindex"])
    except FileNotFoundError:
        del cleaned[".txnindex"]
    swaps = {suffix: old[0].path(suffix) + SWAP_SUFFIX for suffix in cleaned}
    done: list[str] = []
    try:
        for suffix, path in cleaned.items():
            os.rename(path, swaps[suffix])
            done.append(suffix)
    except OSError:
        for suffix in done:
            with contextlib.suppress(OSError):
                os.rename(swaps[suffix], cleaned[suffix])
        raise

    def put_in_place() -> None:
        for suffix in _FROM_SWAP:
            if suffix in swaps:
                os.rename(swaps[suffix], swaps[suffix].removesuffix(SWAP_SUFFIX))

    log.replace_segments(old, put_in_place)


def cleaned_files(directory: str, token: str) -> list[str]:
    """Returns the files that an unfinished cleaning has left; none if the directory cannot be read, and the next start
    removes them."""
    ending = f".{token}{CLEANED_SUFFIX}"
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return [f"{directory}/{name}" for name in names if name.endswith(ending)]


def finish_swaps(directory: str, disk: Disk) -> None:
    """Completes or removes `.swap` and `.cleaned` files at a start, before segments are loaded. Raises OSError."""
    names = set(os.listdir(directory))
    cleaned = {name for name in names if name.endswith(CLEANED_SUFFIX)}
    swaps = {name for name in names if name.endswith(SWAP_SUFFIX) and offset_of(name) is not None}
    incomplete = swaps & _of_first_step(names, cleaned, swaps)
    _unlink(directory, incomplete | cleaned)
    swaps -= incomplete
    if not swaps:
        return
    covered = [_covered(f"{directory}/{name}", disk) for name in swaps if name.endswith(".log" + SWAP_SUFFIX)]
    if covered:
        first, end = min(start for start, _ in covered), max(end for _, end in covered)
        _unlink(directory, (name for name in names if _is_segment_file(name) and first <= (offset_of(name) or 0) < end))
    for name in sorted(swaps, key=lambda name: _FROM_SWAP.index(os.path.splitext(name.removesuffix(SWAP_SUFFIX))[1])):
        _log.warning("%s/%s: finishing the cleaning that was under way", directory, name)
        os.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    fsync_directory(directory)


def _of_first_step(names: set[str], cleaned: set[str], swaps: set[str]) -> set[str]:
    """Returns the `.swap` files of cleanings that did not complete the first step."""
    # Kafka: also the later parts of a split whose first part is still `.cleaned`
    kafkas = (offset for name in cleaned if not is_ours(name) and (offset := offset_of(name)) is not None)
    first = min(kafkas, default=None)
    found = {name for name in swaps if first is not None and (offset_of(name) or 0) >= first}
    for name in swaps:
        stem = name.partition(".")[0]
        if f"{stem}.log{SWAP_SUFFIX}" not in swaps and {f"{stem}.index{SWAP_SUFFIX}", f"{stem}.index"} <= names:
            found.add(name)
    return found


def _is_segment_file(name: str) -> bool:
    return offset_of(name) is not None and name.endswith(SEGMENT_SUFFIXES)


def _covered(path: str, disk: Disk) -> tuple[int, int]:
    """Returns the base offset and the end offset of a segment file with the suffix `.swap`."""
    base_offset = offset_of(os.path.basename(path)) or 0
    end = base_offset
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _, header in scan_headers(disk, fd, 0, os.fstat(fd).st_size):
            end = header.next_offset
    finally:
        os.close(fd)
    return base_offset, end


def _unlink(directory: str, names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{directory}/{name}")
