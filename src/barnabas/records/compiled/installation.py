"""Tells users whether the modules that wheels compile by mypyc run as machine code, and what to do if not."""

from typing import Final

from barnabas.records.compiled.record_walk import is_compiled

__all__ = ["HOW_TO_COMPILE", "describe_installation", "is_compiled"]

HOW_TO_COMPILE: Final = (
    "clients are about ten times slower like this; install a wheel of this platform and Python, or install again where"
    " there is a C compiler, without BARNABAS_PURE=1"
)


def describe_installation() -> str:
    """Returns a few words on how the modules run, for `--version` and the like."""
    return "compiled modules in use" if is_compiled() else "compiled modules not in use, plain Python"
