"""Transactions: which producer id and epoch a transactional id has, what is in its transaction, and how it ends.

`TransactionCoordinator` is the way in, `TransactionCoordinatorShard` the state machine over one partition of
__transaction_state, `TransactionMetadata` the pure state. Nothing here may know a broker, a socket or a clock; end
markers leave through a callable.
"""
