"""The compiled part of the package: one module, by mypyc, where that is possible.

Everything else stands in pyproject.toml. Without a C compiler, or if mypyc fails, the install goes on and the same file
runs as plain Python, ten to thirty times slower; `barnabas.records.kernel.is_compiled()` tells. BARNABAS_PURE=1 asks
for that.
"""

import os
import sys

from setuptools import Extension, setup

KERNEL = "src/barnabas/records/kernel.py"


def extensions() -> list[Extension]:
    """The kernel as optional C extensions; none if mypyc cannot translate it here."""
    if os.environ.get("BARNABAS_PURE") == "1":
        return []
    try:
        from mypyc.build import mypycify

        # the flags keep mypy away from the rest of the project: only the kernel and the record type are looked at
        found = mypycify(["--follow-imports=silent", KERNEL], opt_level="3", debug_level="0", target_dir="build")
    # mypyc raises CompileError, SystemExit or ImportError, depending on what is missing
    except (Exception, SystemExit) as error:
        print(f"barnabas: the record kernel stays plain Python: {error}", file=sys.stderr)
        return []
    for extension in found:
        extension.optional = True
    return list(found)


setup(ext_modules=extensions())
