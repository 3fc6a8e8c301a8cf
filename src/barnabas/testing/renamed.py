"""Keywords of the test kit that have a new name."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["renamed"]

P = ParamSpec("P")
T = TypeVar("T")


def renamed(**keywords: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function that takes keywords under their former names as well: `old="new"`. The former ones warn."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            for old, new in keywords.items():
                if old in kwargs:
                    warnings.warn(f"{function.__name__}({old}=) is {new}= now", DeprecationWarning, stacklevel=2)
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
