"""Makes the transaction coordinator of a broker."""

from barnabas.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog
from barnabas.broker.coordinators.leadership import listen_to_partitions
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import EventLoopScheduler
from barnabas.coordinator.transaction.config import TransactionConfig
from barnabas.coordinator.transaction.transaction_coordinator import TRANSACTION_STATE_TOPIC, TransactionCoordinator
from barnabas.coordinator.transaction.transaction_marker_channel_manager import MarkerChannel

__all__ = ["make_transaction_coordinator"]


def make_transaction_coordinator(broker: BrokerServices, send_markers: MarkerChannel) -> TransactionCoordinator:
    """Returns a coordinator that follows the partitions of __transaction_state which this broker leads."""
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
        later=broker.time_slicer.call_soon,
        wall_ms=broker.clock.wall_ms,
        partition_count=partition_count,
        new_producer_id=broker.producer_ids.next,
        send_markers=send_markers,
        may_be_replaced=lambda: broker.cluster is not None and broker.cluster.may_be_replaced(),
    )
    listen_to_partitions(TRANSACTION_STATE_TOPIC, coordinator, broker.replica_manager, broker.loop)
    return coordinator
