"""The state of one transactional id as an immutable value, and its transitions.

A transition makes a new value; the coordinator writes it to the log, and only the replay of the record changes the
coordinator's state. Producer epochs are int16 and only grow; the last epoch is reserved for fencing, so a new producer
id is used before it.
"""

from enum import Enum
from typing import Any, Final, NamedTuple

from barnabas.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId, TopicPartition

__all__ = [
    "EPOCH_MAX",
    "NO_PARTITIONS",
    "NO_TIMEOUT",
    "TV2",
    "VALID_PREVIOUS",
    "TransactionMetadata",
    "TransactionState",
    "is_exhausted",
]

EPOCH_MAX: Final = 32767
NO_TIMEOUT: Final = 2**31 - 1
"""The timeout of a participant of a two-phase commit: an external coordinator decides, at any time (KIP-939)."""
TV2: Final = 2
"""transaction.version 2: the epoch grows with every transaction, and a write adds its partition (KIP-890)."""

NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class TransactionState(Enum):
    """The state of a transactional id. The value is the number in the log, the name that of the protocol."""

    EMPTY = (0, "Empty")
    """No transaction yet. The first partition leads to ONGOING; an abort with transaction.version 2 to
    PREPARE_ABORT."""
    ONGOING = (1, "Ongoing")
    """Records are being written. More partitions: ONGOING. EndTxn: PREPARE_COMMIT or PREPARE_ABORT. The timeout, or a
    new producer with the same id: PREPARE_ABORT."""
    PREPARE_COMMIT = (2, "PrepareCommit")
    """The outcome is decided and in the log. All end markers written: COMPLETE_COMMIT."""
    PREPARE_ABORT = (3, "PrepareAbort")
    """The outcome is decided and in the log. All end markers written: COMPLETE_ABORT."""
    COMPLETE_COMMIT = (4, "CompleteCommit")
    """The last transaction was committed. Partitions that join: ONGOING. A new producer: EMPTY."""
    COMPLETE_ABORT = (5, "CompleteAbort")
    """The last transaction was aborted. Partitions that join: ONGOING. A new producer: EMPTY."""
    DEAD = (6, "Dead")
    """The id expired. Never in the log, which gets a tombstone of the id instead."""
    PREPARE_EPOCH_FENCE = (7, "PrepareEpochFence")
    """Kafka's name for the moment between fencing a producer and PREPARE_ABORT. Never in the log, and here that moment
    does not exist; clients may ask for it."""

    def __init__(self, number: int, kafka_name: str) -> None:
        self.number = number
        self.kafka_name = kafka_name

    __hash__ = object.__hash__  # members are equal if they are the same; Enum's own hash is a call in Python


S = TransactionState

PREPARED: Final = frozenset((S.PREPARE_COMMIT, S.PREPARE_ABORT))
IDLE: Final = frozenset((S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT))

VALID_PREVIOUS: Final = {
    S.EMPTY: IDLE,
    S.ONGOING: IDLE | {S.ONGOING},
    S.PREPARE_COMMIT: frozenset((S.ONGOING,)),
    S.PREPARE_ABORT: IDLE | {S.ONGOING, S.PREPARE_EPOCH_FENCE},
    S.COMPLETE_COMMIT: frozenset((S.PREPARE_COMMIT,)),
    S.COMPLETE_ABORT: frozenset((S.PREPARE_ABORT,)),
    S.DEAD: IDLE,
    S.PREPARE_EPOCH_FENCE: frozenset((S.ONGOING,)),
}


def is_exhausted(producer_epoch: int) -> bool:
    """Returns whether no client may get a later epoch. The last epoch is reserved for the coordinator, which fences
    with it."""
    return producer_epoch >= EPOCH_MAX - 1


class TransactionMetadata(NamedTuple):
    """The coordinator's knowledge of one transactional id. All fields but `last_producer_epoch` are in the log.

    `producer_id` and `producer_epoch` are those in the records of the transaction, or in its end markers once it is
    prepared. A client that keeps the prepared transaction of its predecessor (KIP-939) has `next_producer_id` and
    `next_producer_epoch` until it has finished it: the predecessor is fenced, its records are not.
    """

    producer_id: ProducerId
    timeout_ms: int
    last_update_timestamp_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the client's last InitProducerId: it tells a retry from a zombie."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """Replaces `producer_id` after the markers are written, because the epochs of that one are used up."""
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    state: TransactionState = S.EMPTY
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_timestamp_ms: int = NO_TIMESTAMP
    client_transaction_version: int = 0

    # --- what is read off it ------------------------------------------------------------------------------------------

    @property
    def client_producer(self) -> tuple[ProducerId, int]:
        """The producer id and epoch that the client must send."""
        if self.next_producer_epoch >= 0:
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def successor(self) -> tuple[ProducerId, int] | None:
        """The producer id and epoch that EndTxn has returned to the client, which are in force after the end markers;
        None if the client keeps its producer id."""
        if self.state in PREPARED and self.next_producer_id >= 0 and self.next_producer_epoch < 0:
            return self.next_producer_id, 0
        return None

    @property
    def is_kept(self) -> bool:
        """Whether a client keeps a transaction of its predecessor: it may only end it."""
        return self.state is S.ONGOING and self.next_producer_epoch >= 0

    @property
    def has_timeout(self) -> bool:
        """Whether the coordinator may abort the transaction after its timeout."""
        return self.timeout_ms != NO_TIMEOUT

    @property
    def timed_out_at_ms(self) -> int:
        """The time at which the timeout of the ongoing transaction has passed."""
        return self.start_timestamp_ms + self.timeout_ms + 1

    # --- moves --------------------------------------------------------------------------------------------------------

    def to(self, state: TransactionState, now_ms: int, **changes: Any) -> "TransactionMetadata":
        """Returns the value after a transition. Asserts that the transition is allowed."""
        assert self.state in VALID_PREVIOUS[state], f"{self.state.kafka_name} does not become {state.kafka_name}"
        changes.setdefault("previous_producer_id", self.producer_id)
        return self._replace(state=state, last_update_timestamp_ms=now_ms, **changes)

    def with_partitions(
        self, added: frozenset[TopicPartition], now_ms: int, client_transaction_version: int
    ) -> "TransactionMetadata":
        return self.to(
            S.ONGOING,
            now_ms,
            partitions=self.partitions | added,
            start_timestamp_ms=self.start_timestamp_ms if self.state is S.ONGOING else now_ms,
            client_transaction_version=client_transaction_version,
        )

    def completed(self, now_ms: int) -> "TransactionMetadata":
        """Returns the completed transaction, after all end markers are written."""
        changes: dict[str, Any] = {"partitions": NO_PARTITIONS, "next_producer_id": NO_PRODUCER_ID}
        if self.next_producer_epoch >= 0:
            changes["producer_id"], changes["producer_epoch"] = self.client_producer
            changes["next_producer_epoch"] = NO_PRODUCER_EPOCH
            changes["previous_producer_id"] = self.previous_producer_id
        elif self.next_producer_id >= 0 and self.client_transaction_version >= TV2:
            changes["producer_id"], changes["producer_epoch"] = self.next_producer_id, 0
        state = S.COMPLETE_COMMIT if self.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT
        return self.to(state, now_ms, **changes)
