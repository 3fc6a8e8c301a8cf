"""Calls about several things: what failed is told item by item."""

from collections.abc import Callable
from typing import Any

from barnabas.client.errors import ClientError, ItemsFailed
from barnabas.errors import BarnabasError

__all__ = ["failures", "refused"]


def failures(call: Callable[[], object]) -> dict[Any, BarnabasError]:
    """What the brokers refused, by item; empty if all went well. Raises what kept them from being asked."""
    try:
        call()
    except ItemsFailed as error:
        return refused(error)
    return {}


def refused(error: ItemsFailed) -> dict[Any, BarnabasError]:
    """The items' errors. Brokers that cannot be reached are no item's fault: that is raised, once."""
    for each in error.failed.values():
        if isinstance(each, ClientError):
            raise each from None
    return error.failed
