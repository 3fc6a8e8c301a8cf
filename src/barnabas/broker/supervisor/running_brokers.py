"""The running processes of a supervisor's brokers, found by the locks of their data directories."""

import fcntl
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Final

from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import META_PROPERTIES, node_id_of, read_properties

__all__ = ["process_of", "stop_broker"]

_FLOCK: Final = "@qqihh" if sys.platform == "darwin" else "@hhqqi4x"
"""The struct flock of fcntl(2): type, whence, start, length, process id; on macOS the first two are the last."""


def stop_broker(data_dir: str, node_id: int) -> None:
    """Asks the process of a broker below this data directory to end in order. Raises UsageError if none runs."""
    try:
        os.kill(process_of(data_dir, node_id), signal.SIGTERM)
    except OSError as error:
        raise UsageError(f"the process of broker {node_id} cannot be ended: {error.strerror}") from None


def process_of(data_dir: str, node_id: int) -> int:
    """Returns the process id of a broker that uses a directory below this one. Raises UsageError if none does."""
    root = Path(data_dir)
    paths = [root, root / f"broker-{node_id}", root / "brokers" / f"broker-{node_id}"]
    for path in paths:
        if node_id_of(read_properties(str(path / META_PROPERTIES))) == str(node_id) and (pid := _lock_holder(path)):
            return pid
    raise UsageError(f"{data_dir}: no broker {node_id} runs in a directory of it; name that of `serve --brokers`")


def _lock_holder(directory: Path) -> int:
    """Returns the id of the process that holds a data directory's lock; 0 for none on this machine."""
    try:
        with open(directory / ".lock", "r+b") as file:
            if sys.platform == "darwin":
                asked = struct.pack(_FLOCK, 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
            else:
                asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            found = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise UsageError(f"{directory}/.lock: {error.strerror}") from None
    kind, pid = (found[3], found[2]) if sys.platform == "darwin" else (found[0], found[4])
    return 0 if kind == fcntl.F_UNLCK else max(0, int(pid))  # below 0: on another machine, or not known
