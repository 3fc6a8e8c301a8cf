"""Stand-ins for mypyc's types and decorators, for compiled modules that run as plain Python. Never compiled itself."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

__all__ = ["I64_MAX", "I64_MIN", "i32", "i64", "mypyc_attr"]

I64_MIN: Final = -0x8000000000000000
I64_MAX: Final = 0x7FFFFFFFFFFFFFFF

if TYPE_CHECKING:
    from mypy_extensions import i32 as i32
    from mypy_extensions import i64 as i64
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    i32 = i64 = int
    _Class = TypeVar("_Class", bound=type)

    def mypyc_attr(**_: object) -> Callable[[_Class], _Class]:
        """Does nothing: the options are for the compiler."""
        return lambda cls: cls
