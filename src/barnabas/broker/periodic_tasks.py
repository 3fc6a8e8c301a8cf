"""The periodic tasks of a broker: the interval of each, and whether it runs on the event loop or in a thread."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Final

from barnabas.broker.scheduler import Scheduler
from barnabas.broker.services import BrokerServices
from barnabas.errors import KafkaStorageError
from barnabas.log.flush import FlushTask

__all__ = ["schedule_tasks"]

_RESERVE_INTERVAL_MS: Final = 30_000
_DELETION_INTERVAL_MS: Final = 1_000
_FLUSH_INTERVAL_MS: Final = 10_000
_OPEN_REFUSED_INTERVAL_MS: Final = 10_000
_PRODUCER_BOUND_INTERVAL_MS: Final = 1_000


def schedule_tasks(
    broker: BrokerServices, scheduler: Scheduler, disk: Executor, refill_reserves: Callable[[], None]
) -> None:
    """Starts the tasks. They end when the scheduler stops."""
    _schedule_log_tasks(broker, scheduler, disk)
    config, every = broker.config, scheduler.every
    every(_RESERVE_INTERVAL_MS, "space reserve", refill_reserves, thread=True)
    every(_OPEN_REFUSED_INTERVAL_MS, "refused logs", broker.replica_manager.open_refused)
    every(config.offsets_retention_check_interval_ms, "offset expiry", broker.groups.expire_offsets)
    every(
        config.transaction_remove_expired_transaction_cleanup_interval_ms,
        "transactional id expiry",
        broker.transactions.expire_transactional_ids,
    )
    every(config.broker_heartbeat_interval_ms, "registry", broker.check_registry)


def _schedule_log_tasks(broker: BrokerServices, scheduler: Scheduler, disk: Executor) -> None:
    config, logs, now_ms = broker.config, broker.log_manager, broker.clock.wall_ms
    first_ms = config.log_initial_task_delay_ms
    every = scheduler.every
    every_from_start = partial(every, first_ms=first_ms)
    cleaner = broker.log_cleaner.manager
    every_from_start(
        config.log_retention_check_interval_ms,
        "log retention",
        lambda: logs.cleanup_logs(now_ms(), busy=cleaner.busy),
    )
    every_from_start(
        config.log_flush_offset_checkpoint_interval_ms,
        "recovery points",
        logs.checkpoint_recovery_points,
        thread=True,
    )
    every_from_start(
        config.log_flush_start_offset_checkpoint_interval_ms,
        "log start offsets",
        logs.checkpoint_log_start_offsets,
        thread=True,
    )
    flush_ms = min(config.log_flush_scheduler_interval_ms, _FLUSH_INTERVAL_MS)
    flusher = LogFlusher(lambda: logs.collect_flushes(now_ms()), broker.loop, disk, broker.log)
    every(flush_ms, "log flush", flusher.flush, first_ms=min(flush_ms, first_ms))
    every(_DELETION_INTERVAL_MS, "file deletion", lambda: logs.remove_deleted(now_ms()), thread=True)
    every(_PRODUCER_BOUND_INTERVAL_MS, "producer bound", logs.bound_producers)
    every(config.producer_id_expiration_check_interval_ms, "producer expiry", lambda: logs.expire_producers(now_ms()))
    every(
        config.replica_high_watermark_checkpoint_interval_ms,
        "high watermarks",
        logs.checkpoint_high_watermarks,
        thread=True,
    )


class LogFlusher:
    """Flushes rolled segments, and logs whose flush.ms has passed, in a thread."""

    def __init__(
        self,
        collect: Callable[[], list[FlushTask]],
        loop: asyncio.AbstractEventLoop,
        disk: Executor,
        log: logging.Logger,
    ) -> None:
        self._collect = collect
        self._loop = loop
        self._disk = disk
        self._log = log
        self._flushing = False

    def flush(self) -> None:
        if self._flushing:
            return  # the disk is slow: the next call flushes what has been written meanwhile
        tasks = self._collect()
        if tasks:
            self._flushing = True
            done = self._loop.run_in_executor(self._disk, _run_all, tasks)
            done.add_done_callback(lambda done: self._on_flushed(tasks, done.exception()))

    def _on_flushed(self, tasks: list[FlushTask], bug: BaseException | None) -> None:
        self._flushing = False
        if bug is not None:
            self._log.error("flushing failed", exc_info=bug)
            return
        for task in tasks:
            try:
                task.complete()
            except KafkaStorageError as error:
                self._log.error("%s", error)


def _run_all(tasks: Iterable[FlushTask]) -> None:
    for task in tasks:
        task.run()
