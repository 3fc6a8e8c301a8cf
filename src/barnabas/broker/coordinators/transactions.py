"""The transaction coordinator's place in the broker: its log, its clock, its producer ids and its way to partitions."""

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog
from barnabas.broker.coordinators.leadership import follow_partitions
from barnabas.broker.coordinators.transaction_markers import write_markers
from barnabas.coordinator.event_loop import EventLoopScheduler
from barnabas.coordinator.transaction.config import TransactionConfig
from barnabas.coordinator.transaction.transaction_coordinator import TRANSACTION_STATE_TOPIC, TransactionCoordinator

if TYPE_CHECKING:
    from barnabas.broker.server import Broker

__all__ = ["wire_transactions"]


def wire_transactions(broker: "Broker") -> TransactionCoordinator:
    """The coordinator of a broker, told of the partitions that this broker leads from now on."""
    config = broker.config

    def partition_count() -> int:
        topic = broker.image.topics.get(TRANSACTION_STATE_TOPIC)
        return len(topic.partitions) if topic is not None else config.transaction_state_log_num_partitions

    coordinator = TransactionCoordinator(
        config=TransactionConfig(
            max_timeout_ms=config.transaction_max_timeout_ms,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            two_phase_commit_enable=config.transaction_two_phase_commit_enable,
            add_wait_max_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
        ),
        log=ReplicatedCoordinatorLog(
            TRANSACTION_STATE_TOPIC, broker.replica_manager, config.transaction_state_log_load_buffer_size
        ),
        scheduler=EventLoopScheduler(broker.loop),
        later=broker.turns.call_soon,
        wall_ms=broker.clock.wall_ms,
        partition_count=partition_count,
        new_producer_id=broker.controller.next_producer_id,
        send_markers=partial(write_markers, broker),
    )
    follow_partitions(TRANSACTION_STATE_TOPIC, coordinator, broker.replica_manager, broker.loop)
    return coordinator
