"""Calls about several things, of which some may fail."""

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.client.errors import ClientError, ItemsFailed
from barnabas.errors import BarnabasError

__all__ = ["failures_text", "outcomes"]


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


def failures_text(failed: Mapping[Any, object]) -> str:
    """Returns the errors of items in one line, each with its item in front, if it does not begin with that itself."""
    texts = {item: str(error).removeprefix(f"{item}: ").removesuffix(".") for item, error in failed.items()}
    return "; ".join(f"{item}: {text}" for item, text in texts.items())
