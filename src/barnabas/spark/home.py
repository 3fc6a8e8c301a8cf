"""Spark's home without the archive of pyspark.

Spark's workers find pyspark first in `python/lib/pyspark.zip`, out of which Python compiles each module anew in each
of some ten processes: 0.6 s of CPU each. In a home without it they find the installed one, which is compiled.
"""

import atexit
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["use_compiled_pyspark"]

_PARTS: Final = ("bin", "conf", "jars", "sbin")


def use_compiled_pyspark() -> None:
    """For a session on this machine that is started by this process. Does nothing where SPARK_HOME is set."""
    spec = find_spec("pyspark")
    if os.environ.get("SPARK_HOME") or spec is None or not spec.submodule_search_locations:
        return
    installed = Path(spec.submodule_search_locations[0])
    if not (installed / "jars").is_dir() or not (installed / "bin").is_dir():
        return
    home = Path(tempfile.mkdtemp(prefix="barnabas-spark-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in _PARTS:
        if (installed / part).is_dir():
            (home / part).symlink_to(installed / part, target_is_directory=True)
    os.environ["SPARK_HOME"] = str(home)
