"""Decorators for mypyc in modules that also run uncompiled, where mypy_extensions need not be installed."""

try:
    from mypy_extensions import mypyc_attr as mypyc_attr
except ImportError:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

    def mypyc_attr(*_: str, **__: object) -> Callable[[T], T]:
        return lambda decorated: decorated


__all__ = ["mypyc_attr"]
