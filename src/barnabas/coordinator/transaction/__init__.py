"""Transactions: the producer id and epoch of each transactional id, the partitions in its transaction, and its end.

`TransactionCoordinator` is the interface for the broker, `TransactionCoordinatorShard` the state machine over one
partition of __transaction_state, `TransactionMetadata` the immutable state. Nothing here knows a broker, a socket or a
clock; a callable sends the end markers.
"""
