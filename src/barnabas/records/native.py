"""The former name of `compiled`, which extensions that were built before still look for."""

from barnabas.records.compiled import mypyc_attr as mypyc_attr

__all__ = ["mypyc_attr"]
