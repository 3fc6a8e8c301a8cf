"""The bytes of a log's segments, and disks that refuse."""

import os


def contents(log) -> bytes:
    return b"".join(segment.read(0, segment.size) for segment in log.segments)


def refuse(code: int):
    def call(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return call
