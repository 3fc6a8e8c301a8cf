"""What a transactional producer is in the middle of, and what may come after it. States are Kafka's."""

from enum import Enum
from typing import Final

__all__ = ["BEFORE", "SENDING", "TransactionState"]


class TransactionState(Enum):
    """Each with what a caller is told who asks for something else."""

    UNINITIALIZED = "has not called init_transactions() yet"
    INITIALIZING = "is in init_transactions()"
    READY = "has no transaction open; call begin_transaction() first"
    IN_TRANSACTION = "has a transaction open; commit or abort it first"
    PREPARING = "is in prepare_transaction()"
    PREPARED = "has a prepared transaction; call complete_transaction(), commit_transaction() or abort_transaction()"
    COMMITTING = "is in commit_transaction()"
    ABORTING = "is in abort_transaction()"
    ABORTABLE_ERROR = "has a transaction that failed; call abort_transaction()"
    FATAL_ERROR = "cannot go on; close it"


S = TransactionState

BEFORE: Final = {
    S.UNINITIALIZED: {S.INITIALIZING, S.PREPARING},
    S.INITIALIZING: {S.UNINITIALIZED},
    S.READY: {S.INITIALIZING, S.COMMITTING, S.ABORTING},
    S.IN_TRANSACTION: {S.READY},
    S.PREPARING: {S.IN_TRANSACTION},
    S.PREPARED: {S.PREPARING, S.INITIALIZING},
    S.COMMITTING: {S.IN_TRANSACTION, S.PREPARED},
    S.ABORTING: {S.IN_TRANSACTION, S.PREPARED, S.ABORTABLE_ERROR},
    S.ABORTABLE_ERROR: {S.IN_TRANSACTION, S.PREPARING, S.COMMITTING},
    S.FATAL_ERROR: set(S),
}
SENDING: Final = frozenset((S.IN_TRANSACTION, S.PREPARING, S.COMMITTING))
"""Records go out, also those that are sent again."""
