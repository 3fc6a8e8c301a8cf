"""Deals with standard streams that are closed, full, or without a reader."""

import fcntl
import os
import sys
from typing import Final, TextIO

__all__ = ["OutputLost", "finish_output", "is_readable", "open_closed_streams", "redirect_to_null"]


class OutputLost(Exception):
    """The output could not be written. The message says why."""


_MODES: Final = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)
"""The modes of the replacements for closed streams 0, 1 and 2. Those of the first two are wrong, so that reading and
writing them fails as on a closed descriptor. Messages to a closed standard error are dropped."""


def open_closed_streams(*, drop_output: bool) -> None:
    """Opens descriptors 0 to 2 that the caller has closed, so that no socket or log gets their number and no stream is
    None. `drop_output`: a closed standard output is intended, not an error."""
    for descriptor, mode in enumerate(_MODES):
        if drop_output and descriptor == 1:
            mode = os.O_WRONLY
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != descriptor:
                os.dup2(opened, descriptor, inheritable=True)
                os.close(opened)
            else:
                os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  lives as long as the process
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  as above
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  as above


def finish_output() -> None:
    """Writes the buffered output. A reader that has gone is no error. Raises OutputLost for all other failures."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
    except OSError as error:
        redirect_to_null(sys.stdout)
        raise OutputLost(f"standard output: {(error.strerror or str(error)).lower()}") from None
    except ValueError:  # closed by the command itself
        return


def is_readable(stream: TextIO) -> bool:
    """Whether its descriptor is open for reading."""
    return fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY


def redirect_to_null(stream: TextIO) -> None:
    """Drops buffered and later output: Python flushes its streams once more at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
