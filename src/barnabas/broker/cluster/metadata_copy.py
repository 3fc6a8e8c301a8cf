"""The copy of the cluster's metadata beside the logs of each broker, from which a lost registry is made anew.

A copy is a sequence of the messages in which the controller pushes a whole image (`metadata_messages`), each with its
length and its CRC-32C in front. It is written a second after a change at the earliest, without a sync. `barnabas
cluster recover` takes the newest one, and decides by the logs which replica of a partition has all its records.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from struct import Struct
from typing import Final

from barnabas.broker.cluster.metadata_messages import message_of, update_of
from barnabas.errors import CorruptMessage
from barnabas.log.directories.checkpoints import METADATA_COPY, replace_file
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.update import UpdateReceiver, parts_of_update
from barnabas.protocol.codec import MalformedMessage, decode, encode
from barnabas.protocol.peer_messages.push_metadata import PushMetadataRequest
from barnabas.records.checksum import crc32c

__all__ = ["MetadataCopier", "read_copy", "write_copy"]

INTERVAL_S: Final = 1.0
_HEAD: Final = Struct(">II")
"""Length and CRC-32C."""
_VERSION: Final = 0


def write_copy(path: str, image: MetadataImage) -> None:
    """Replaces the copy. Raises OSError."""
    parts = []
    for update in parts_of_update(image, None):
        data = encode(message_of(update), _VERSION)
        parts += [_HEAD.pack(len(data), crc32c(data)), data]
    replace_file(path, b"".join(parts), sync=False)


def read_copy(path: str | os.PathLike[str]) -> MetadataImage:
    """Returns the image of a copy. Raises OSError, and CorruptMessage if the file is damaged."""
    data = Path(path).read_bytes()
    receiver = UpdateReceiver(EMPTY_IMAGE)
    position, change = 0, None
    while position + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        body = data[position : position + length]
        position += length
        if len(body) != length or crc32c(body) != checksum:
            raise CorruptMessage(f"{path} is damaged")
        try:
            change = receiver.receive(update_of(decode(PushMetadataRequest, _VERSION, body)[0]))
        except (MalformedMessage, ValueError) as error:
            raise CorruptMessage(f"{path} is damaged: {error}") from None
    if change is None or position != len(data):
        raise CorruptMessage(f"{path} is damaged: its end is missing")
    return change.image


class MetadataCopier:
    """Keeps the copies of a broker up to date. Used on the event loop's thread."""

    def __init__(
        self,
        directories: list[str],
        image: Callable[[], MetadataImage],
        loop: asyncio.AbstractEventLoop,
        disk: Executor,
        log: logging.Logger,
    ) -> None:
        """`image` returns the present image; `disk` runs what blocks."""
        self._paths = [f"{directory}/{METADATA_COPY}" for directory in directories]
        self._image = image
        self._loop = loop
        self._disk = disk
        self._log = log
        self._timer: asyncio.TimerHandle | None = None
        self._is_writing = False

    def image_changed(self) -> None:
        if self._timer is None and not self._is_writing:
            self._timer = self._loop.call_later(INTERVAL_S, self._write)

    def _write(self) -> None:
        image = self._image()
        self._timer, self._is_writing = None, True
        done = self._loop.run_in_executor(self._disk, self._write_all, image)
        done.add_done_callback(lambda _: self._on_written(image.version))

    def _write_all(self, image: MetadataImage) -> None:
        for path in self._paths:
            try:
                write_copy(path, image)
            except OSError as error:
                self._log.warning("the copy of the metadata in %s is not up to date: %s", path, error.strerror)

    def _on_written(self, version: int) -> None:
        self._is_writing = False
        if self._image().version != version:
            self.image_changed()

    def close(self) -> None:
        """Writes the last change, if it waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._write_all(self._image())
