"""Keeps the copies of the metadata beside the logs of a broker up to date (`cluster/metadata_copy.py`)."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from barnabas.late_imports import import_late
from barnabas.log.directories.checkpoints import METADATA_COPY
from barnabas.metadata.image import MetadataImage

__all__ = ["MetadataCopier"]

INTERVAL_S: Final = 1.0
AGAIN_S: Final = 10.0
"""After this time a copy that the disk has refused is written again: nobody else may change the metadata for weeks."""


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
        self._is_closed = False
        self._refused: set[str] = set()
        """The copies that are not up to date because the disk has refused them, or memory, which is told once."""

    def image_changed(self) -> None:
        self._write_after(INTERVAL_S)

    def _write_after(self, seconds: float) -> None:
        if self._timer is None and not self._is_writing and not self._is_closed:
            self._timer = self._loop.call_later(seconds, self._write)

    def _write(self) -> None:
        image = self._image()
        self._timer, self._is_writing = None, True
        done = self._loop.run_in_executor(self._disk, self._write_all, image)
        done.add_done_callback(lambda _: self._on_written(image.version))

    def _write_all(self, image: MetadataImage) -> None:
        write_copy = import_late("barnabas.broker.cluster.metadata_copy").write_copy  # a start need not wait for it
        for path in self._paths:
            try:
                write_copy(path, image)
                self._refused.discard(path)
            except (OSError, MemoryError) as error:
                if path not in self._refused:
                    self._refused.add(path)
                    reason = error.strerror if isinstance(error, OSError) else "memory has run out"
                    self._log.warning("the copy of the metadata in %s is not up to date: %s", path, reason)

    def _on_written(self, version: int) -> None:
        self._is_writing = False
        if self._image().version != version:
            self.image_changed()
        elif self._refused:
            self._write_after(AGAIN_S)

    def close(self) -> None:
        """Writes the last change, if it waits."""
        waits = self._timer is not None
        self.cancel()
        if waits:
            self._write_all(self._image())

    def cancel(self) -> None:
        """Writes nothing more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
