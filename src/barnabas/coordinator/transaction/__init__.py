"""Transactions: the producer id and epoch of each transactional id, the partitions in its transaction, and its end.

`TransactionCoordinator` is the way in, `TransactionCoordinatorShard` the state machine over one partition of
__transaction_state, `TransactionMetadata` the pure state. Nothing here may know a broker, a socket or a clock; end
markers leave through a callable.
"""
