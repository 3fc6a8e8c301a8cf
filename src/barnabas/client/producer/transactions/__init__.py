"""Transactions of a producer: the states of the transaction, and the requests to its coordinator."""
