"""Whether the modules that wheels compile by mypyc run as machine code here, and what to do where they do not."""

from typing import Final

from barnabas.records.compiled.record_walk import is_compiled

__all__ = ["HOW_TO_COMPILE", "is_compiled", "told"]

HOW_TO_COMPILE: Final = (
    "clients are about ten times slower like this; install a wheel of this platform and Python, or install again where"
    " there is a C compiler, without BARNABAS_PURE=1"
)


def told() -> str:
    """Returns in a few words how the hot modules run, for `--version` and the like."""
    return "compiled modules in use" if is_compiled() else "compiled modules not in use, plain Python"
