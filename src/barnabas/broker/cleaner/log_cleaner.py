"""Runs the log cleaner in a broker: looks for dirty logs every log.cleaner.backoff.ms and cleans them in a process."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from barnabas.broker.cleaner.cleaner_process import CleanerProcess
from barnabas.clock import Clock
from barnabas.config.broker import BrokerConfig
from barnabas.log.cleaner.cleaner_protocol import CleanerConfig
from barnabas.log.cleaner.log_cleaner_manager import LogCleanerManager
from barnabas.log.log_manager import LogManager
from barnabas.out_of_memory import end_if_out_of_memory

__all__ = ["LogCleaner"]

_INTERVAL_MIN_S: Final = 0.01
_INTERVAL_MAX_S: Final = 365 * 86_400.0
_BUSY_INTERVAL_MAX_S: Final = 30.0
"""The longest interval between two checks of a cleaning in progress."""


class LogCleaner:
    """Drives the cleaner manager with a timer, a process for the work and a thread for checkpoints."""

    def __init__(
        self,
        log_manager: LogManager,
        config: Callable[[], BrokerConfig],
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        executor: Executor,
        log: logging.Logger,
    ) -> None:
        """`config` returns the current settings. `executor` writes the checkpoint files."""
        self._config = config
        self._loop = loop
        self._executor = executor
        self._log = log
        self._timer: asyncio.TimerHandle | None = None
        self._is_unwritten = False
        """Whether the checkpoints could not be written after the last cleaning."""
        self.process = CleanerProcess(
            loop, lambda event: self.manager.event(event), lambda reason: self.manager.ended(reason)
        )
        self.manager = LogCleanerManager(log_manager, self.process, self.cleaner_config, clock, self._on_cleaned)

    def start(self) -> None:
        """Begins to look for dirty logs if log.cleaner.enable is set."""
        if self._config().log_cleaner_enable:
            self._schedule()

    def _schedule(self) -> None:
        backoff_s = self._config().log_cleaner_backoff_ms / 1000
        interval_max_s = _BUSY_INTERVAL_MAX_S if self.manager.busy else _INTERVAL_MAX_S
        self._timer = self._loop.call_later(max(_INTERVAL_MIN_S, min(backoff_s, interval_max_s)), self._on_timer)

    def _on_timer(self) -> None:
        self.run()
        self._schedule()

    def run(self) -> None:
        try:
            if self._is_unwritten:
                self._write_checkpoints()
            self.logs_changed()
            self.manager.run()
        except Exception as error:
            end_if_out_of_memory(error)
            self._log.exception("looking for dirty logs failed")

    def logs_changed(self) -> None:
        """Takes note of logs that may have been deleted or truncated."""
        self.manager.check()

    def _on_cleaned(self) -> None:
        self._write_checkpoints()
        self._loop.call_soon(self.run)  # like Kafka: no pause while there are more dirty logs

    def _write_checkpoints(self) -> None:
        self._is_unwritten = False
        done = self._loop.run_in_executor(self._executor, self.manager.persist)
        done.add_done_callback(self._on_checkpoints_written)

    def _on_checkpoints_written(self, done: "asyncio.Future[None]") -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self._log.error("cleaner-offset-checkpoint cannot be written: %s", error)
            self._is_unwritten = True  # the next run tries again

    def cleaner_config(self) -> CleanerConfig:
        config = self._config()
        return CleanerConfig(
            dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
            io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
            io_buffer_size=config.log_cleaner_io_buffer_size,
            io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        )

    def stop(self) -> None:
        """Ends the process and removes the files of an unfinished cleaning."""
        if self._timer is not None:
            self._timer.cancel()
        self.process.close()
        self.manager.close()
