"""What transaction.version means for the requests of producers and of whoever ends their transactions."""

from typing import Final

from barnabas.connection.network_client import NetworkClient

__all__ = ["adds_by_itself", "newest_end"]

_FEATURE: Final = "transaction.version"
_END_V1_UNTIL: Final = 4


def adds_by_itself(client: NetworkClient) -> bool:
    """Version 2 (KIP-890): a partition joins a transaction by being written to, and every end uses up the epoch."""
    return client.feature(_FEATURE) >= 2


def newest_end(by_itself: bool) -> int | None:
    """The last version of EndTxn that may be sent; later ones use up the epoch."""
    return None if by_itself else _END_V1_UNTIL
