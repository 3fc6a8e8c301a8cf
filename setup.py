"""The compiled part of the package: a few modules, by mypyc, where that is possible.

Everything else stands in pyproject.toml. Without a C compiler, or if mypyc fails, the install goes on and the same
files run as plain Python, ten to sixty times slower; `barnabas.records.kernel.is_compiled()` tells. BARNABAS_PURE=1
asks for that. In a checkout `pip install -e .` or `python setup.py build_ext --inplace` puts them beside their sources.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNELS = [
    f"src/barnabas/records/{name}.py"
    for name in (
        "kernel",
        "consumer_kernel",
        "columns_kernel",
        "bulk_kernel",
        "offset_map_kernel",
        "compaction_kernel",
    )
]
KERNELS += [f"src/barnabas/client/core/producer/{name}.py" for name in ("batch", "intake")]
# what every request of a client goes through: half of the time that a record takes there and back was interpreted
KERNELS += [
    f"src/barnabas/client/{name}.py"
    for name in (
        *("core/call", "core/coordinators", "core/engine", "core/frames", "core/metadata", "core/peers"),
        *("core/promise", "core/targets", "core/timers", "core/upkeep"),
        *("core/views", "core/wire", "drivers/channel", "drivers/channels", "drivers/followers", "drivers/signals"),
        *("drivers/sync", "producer_front"),
        *("core/fetch_answer", "core/fetch_session", "core/fetch_store", "core/fetcher"),
        *("core/positions", "core/sections", "core/subscription"),
        *(f"core/consumer/{part}" for part in ("core", "fetching")),
        *(f"core/producer/{part}" for part in ("accumulator", "core", "identity", "partition", "produce", "sender")),
    )
]


def stays_plain(reason: object) -> None:
    sys.stderr.write(f"barnabas: the record code stays plain Python: {reason}\n")


def extensions() -> list[Extension]:
    """The kernels as C extensions (mypyc makes one of code and a door to it for each); none if they cannot be made."""
    if os.environ.get("BARNABAS_PURE") == "1":
        return []
    try:
        from mypyc.build import mypycify

        # the group's name puts the code beside its modules; without one it would lie outside the package
        options = {"opt_level": "3", "debug_level": "0", "target_dir": "build", "group_name": "barnabas.records.kernel"}
        return list(mypycify(["--follow-imports=silent", *KERNELS], **options))
    # ImportError, CompileError or SystemExit, depending on what is missing
    except (Exception, SystemExit) as error:
        stays_plain(error or type(error).__name__)
        return []


class BuildAllOrNone(build_ext):
    """One of the extensions without the others would hide the source and then fail to import."""

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except Exception as error:
            stays_plain(error)
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAllOrNone})
