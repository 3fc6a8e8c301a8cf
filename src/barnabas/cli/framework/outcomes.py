"""Calls about several things, of which some may fail."""

from collections.abc import Callable
from typing import Any

from barnabas.client.errors import ClientError, ItemsFailed
from barnabas.errors import BarnabasError

__all__ = ["outcomes"]


def outcomes(call: Callable[[], Any]) -> tuple[Any, dict[Any, BarnabasError]]:
    """Calls, and returns the result for what succeeded and the error of each item that the brokers refused.

    Brokers that cannot be reached are the fault of no item: that error is raised.
    """
    try:
        return call(), {}
    except ItemsFailed as error:
        for each in error.failed.values():
            if isinstance(each, ClientError):
                raise each from None
        return error.succeeded, error.failed
