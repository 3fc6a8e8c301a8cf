"""Chooses the versions of transactions' requests by the cluster's feature transaction.version."""

from typing import Final

from barnabas.connection.network_client import NetworkClient

__all__ = ["adds_partitions_implicitly", "newest_end_txn_version"]

_FEATURE: Final = "transaction.version"
_KEEPS_EPOCH_UNTIL: Final = 4


def adds_partitions_implicitly(client: NetworkClient) -> bool:
    """Returns whether the cluster has version 2 (KIP-890): a write adds its partition to the transaction, and every end
    of a transaction increments the producer epoch."""
    return client.feature(_FEATURE) >= 2


def newest_end_txn_version(implicit: bool) -> int | None:
    """Returns the newest version of EndTxn that may be sent, None for any; those above 4 increment the epoch."""
    return None if implicit else _KEEPS_EPOCH_UNTIL
