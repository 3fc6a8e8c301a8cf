"""Sets up the memory and the limits of the broker's process.

glibc gives a freed megabyte back to the kernel at once, and the next one comes back as 256 page faults: measured, three
quarters of the CPU time of checking lz4 batches of 1 MB (0.65 against 0.17 s for 300 MB). So memory is kept up to a
bound. Python's garbage collector skips the objects of the start, because they stay.
"""

import contextlib
import ctypes
import gc
import resource
from typing import Final

from barnabas.log.directories.disk import default_pool_limit

__all__ = ["connection_descriptors", "keep_freed_memory", "raise_open_files_limit", "settle_collector"]

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""The unused memory that may stay at the top of the heap, and the size from which a buffer is mapped separately."""

_MOMENTARY_FILES: Final = 32
_CONNECTIONS_MIN: Final = 4
_UNLIMITED: Final = 2**31 - 1


def keep_freed_memory() -> None:
    """Sets the malloc parameters of the whole process. Does nothing if the C library has none."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES_MAX)


def raise_open_files_limit() -> None:
    """Raises the limit on open files to the hard limit: each segment and each connection holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connection_descriptors() -> int:
    """Returns the number of file descriptors for connections. It is asked whenever one comes: the limit of a process
    that runs may be changed (`prlimit`), and may be low at its start for a while.

    The log has its share (`default_pool_limit`). A part is kept free for what opens files for a moment: syncs,
    checkpoints, segments on their way to a client after the log has closed them, the registry, the cleaner.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _UNLIMITED
    return max(_CONNECTIONS_MIN, soft - default_pool_limit() - _MOMENTARY_FILES - soft // 16)


def settle_collector() -> None:
    """Excludes the objects made so far from garbage collection, because they live as long as the process.

    A collection stops the event loop, for 10 to 35 ms after 50,000 new objects. So it comes ten times as often. Most
    requests leave no cycles, and so nothing to collect.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 200)
