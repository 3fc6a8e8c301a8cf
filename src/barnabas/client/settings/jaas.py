"""Reads `sasl.jaas.config`, where Kafka's Java clients keep user and password, so that their files can be used here."""

import re
from typing import Final

from barnabas.errors import UsageError

__all__ = ["parse_jaas"]

_MODULE: Final = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b")
_OPTION: Final = re.compile(r"\s*([\w.-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_MODULES: Final = frozenset(("PlainLoginModule", "ScramLoginModule"))
_WAY_OUT: Final = "give sasl.username and sasl.password instead"


def parse_jaas(text: str) -> tuple[str, str]:
    """Returns user and password. `...PlainLoginModule required username="a" password="b";` gives a and b.

    Raises UsageError for another module, a missing option or another form; the text, a secret, is never shown.
    """
    module = _MODULE.match(text)
    if module is None:
        raise UsageError(f"sasl.jaas.config is not `module required option=value ...;`; {_WAY_OUT}")
    name = module[1].rpartition(".")[2]
    if name not in _MODULES:
        raise UsageError(
            f"sasl.jaas.config: {name} is not supported, only {' and '.join(sorted(_MODULES))}; {_WAY_OUT}"
        )
    options: dict[str, str] = {}
    position = module.end()
    while (option := _OPTION.match(text, position)) is not None:
        quoted = option[2] if option[2] is not None else option[3]
        options[option[1]] = option[4] if quoted is None else _ESCAPE.sub(r"\1", quoted)
        position = option.end()
    if text[position:].strip() != ";":
        raise UsageError(f"sasl.jaas.config does not end with `;` after its options; {_WAY_OUT}")
    missing = [option for option in ("username", "password") if option not in options]
    if missing:
        raise UsageError(f"sasl.jaas.config has no {' and no '.join(missing)}; {_WAY_OUT}")
    return options["username"], options["password"]
