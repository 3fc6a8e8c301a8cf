"""The file `barnabas-registration` of a data directory: in which registration of its broker it was last used.

The registry remembers each broker's last registration, by a random id. A directory that knows another one has missed a
start: it is an old copy, or its disk was away. The id of a registration that is about to be made is noted before it is
made, so that the directory knows it wherever the broker is killed meanwhile.
"""

import contextlib
import fcntl
import json
import os
import struct
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas.log.directories.checkpoints import replace_file

__all__ = ["REGISTRATION", "RegistrationMark", "read_registration_mark", "write_registration_mark"]

REGISTRATION: Final = "barnabas-registration"
_GET_GENERATION: Final = 0x80087601
"""FS_IOC_GETVERSION of Linux: a file that gets the inode number of one that was removed has another generation."""


class RegistrationMark(NamedTuple):
    """The registrations of a broker that one of its data directories knows."""

    registration_id: str = ""
    """The registration in which the directory was last used; '' if it was in none, or in one of an older release."""
    next_id: str = ""
    """The registration that was about to be made."""
    broker_epoch: int = -1
    """The broker epoch of the registration."""

    def knows(self, registration_id: str) -> bool:
        return registration_id in (self.registration_id, self.next_id)


class FoundMark(NamedTuple):
    """The content of the file."""

    mark: RegistrationMark
    """Empty if there is a `problem`."""
    is_in_place: bool
    """Whether nobody has put a copy of the file in its place."""
    problem: str
    """The problem with the file, to be said after its name."""


def read_registration_mark(data_dir: str) -> FoundMark:
    """Returns what the file of a data directory says, and what is wrong with it."""
    content = b""
    try:
        with open(f"{data_dir}/{REGISTRATION}", "rb") as file:
            content = file.read()
            found = json.loads(content)
            mark = RegistrationMark(str(found["registration"]), str(found["next"]), int(found["brokerEpoch"]))
            return FoundMark(mark, found["file"] == _identity(file.fileno()), "")
    except FileNotFoundError:
        return FoundMark(RegistrationMark(), True, "is missing")
    except OSError as error:
        return FoundMark(RegistrationMark(), False, f"cannot be read ({error.strerror})")
    except (ValueError, KeyError, TypeError):
        problem = "is damaged (it is not the JSON that a broker writes)" if content else "is damaged (it is empty)"
        return FoundMark(RegistrationMark(), False, problem)


def write_registration_mark(data_dir: str, mark: RegistrationMark, *, in_place: bool = True) -> None:
    """Writes the mark; one that is not `in_place` is read as a copy. Blocks for a sync. Raises OSError."""
    replace_file(f"{data_dir}/{REGISTRATION}", partial(_encoded, mark, in_place))


def _encoded(mark: RegistrationMark, in_place: bool, fd: int) -> bytes:
    found: dict[str, Any] = {
        "version": 1,
        "registration": mark.registration_id,
        "next": mark.next_id,
        "brokerEpoch": mark.broker_epoch,
        "file": _identity(fd) if in_place else "",
    }
    return json.dumps(found).encode()


def _identity(fd: int) -> str:
    """Returns what no other file in the same file system has, as long as this one is there."""
    generation = bytearray(struct.calcsize("l"))
    with contextlib.suppress(OSError):  # not every file system has one
        fcntl.ioctl(fd, _GET_GENERATION, generation)
    return f"{os.fstat(fd).st_ino}:{generation.hex()}"
