"""Compaction in the running broker: dirty logs are looked for every log.cleaner.backoff.ms and cleaned by a process."""

import asyncio
from typing import TYPE_CHECKING, Final

from barnabas.broker.cleaner.cleaner_process import CleanerProcess
from barnabas.log.cleaner.cleaner_protocol import CleanerConfig
from barnabas.log.cleaner.log_cleaner_manager import LogCleanerManager

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from barnabas.broker.server import Broker

__all__ = ["LogCleaner"]

_INTERVAL_MIN_S: Final = 0.01
_INTERVAL_MAX_S: Final = 365 * 86_400.0
_BUSY_INTERVAL_MAX_S: Final = 30.0
"""So often a cleaning that goes on is looked after."""


class LogCleaner:
    """The cleaner with its timer, its process and a thread for what blocks."""

    def __init__(self, broker: "Broker", disk: "Executor") -> None:
        self._broker = broker
        self._disk = disk
        self._timer: asyncio.TimerHandle | None = None
        self.process = CleanerProcess(
            broker.loop, lambda event: self.cleaner.event(event), lambda reason: self.cleaner.ended(reason)
        )
        self.cleaner = LogCleanerManager(
            broker.log_manager, self.process, self._limits, broker.clock, self._cleaning_is_through
        )

    def start(self) -> None:
        """From now on, if log.cleaner.enable says so."""
        if self._broker.config.log_cleaner_enable:
            self._wait()

    def _wait(self) -> None:
        backoff_s = self._broker.config.log_cleaner_backoff_ms / 1000
        interval_max_s = _BUSY_INTERVAL_MAX_S if self.cleaner.busy else _INTERVAL_MAX_S
        self._timer = self._broker.loop.call_later(max(_INTERVAL_MIN_S, min(backoff_s, interval_max_s)), self._look)

    def _look(self) -> None:
        self._run()
        self._wait()

    def _run(self) -> None:
        try:
            self.logs_changed()
            self.cleaner.run()
        except Exception:
            self._broker.log.exception("looking for dirty logs failed")

    def logs_changed(self) -> None:
        """Logs may have gone, or have been cut."""
        if self.cleaner.check():
            self._persist()

    def _cleaning_is_through(self) -> None:
        self._persist()
        self._broker.loop.call_soon(self._run)  # as Kafka: no pause as long as there is something to do

    def _persist(self) -> None:
        done = self._broker.loop.run_in_executor(self._disk, self.cleaner.persist)
        done.add_done_callback(self._persisted)

    def _persisted(self, done: "asyncio.Future[None]") -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self._broker.log.error("cleaner-offset-checkpoint cannot be written: %s", error)
            self._broker.log_manager.cleaned_offsets_lost = True  # the next look tries again

    def _limits(self) -> CleanerConfig:
        config = self._broker.config
        return CleanerConfig(
            dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
            io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
            io_buffer_size=config.log_cleaner_io_buffer_size,
            io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        )

    def stop(self) -> None:
        """End the process and leave nothing of it behind."""
        if self._timer is not None:
            self._timer.cancel()
        self.process.close()
        self.cleaner.close()
