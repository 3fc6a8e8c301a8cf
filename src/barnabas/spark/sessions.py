"""Makes a Spark session with the settings that speed up Python sources and sinks. None of them is Spark's default.

Measured with pyspark 4.3 on two cores, eight tasks from a Python source to a Python sink: 437 ms for a micro-batch with
Spark's defaults, 120 ms with these.
"""

import atexit
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.java import find_java
from barnabas.spark.workers import UNIX_SOCKETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session", "session_settings", "use_compiled_pyspark"]

_PARTS_OF_HOME: Final = ("bin", "conf", "jars", "sbin")
_SETTINGS: Final = {
    UNIX_SOCKETS: "true",  # by TCP each task of Python waits some 40 ms, unless it is one of ours
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",  # below that the JVM measures a batch after every row
}
_LOCAL_SETTINGS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),  # right for local disks; object stores have their own
}


def session_settings(*, local_disk: bool = False) -> dict[str, str]:
    """Returns the settings for a session, or for `spark-submit --conf`. The first has an effect only at start-up.
    `local_disk` says that checkpoints are on a disk of this machine."""
    return {**_SETTINGS, **(_LOCAL_SETTINGS if local_disk else {})}


def session(
    app_name: str = "barnabas", *, master: str | None = None, settings: dict[str, Any] | None = None
) -> "SparkSession":
    """Returns a session with our settings and the given ones, which take precedence. The default `master` is
    `local[*]`. Raises UsageError if there is no Java that Spark can use."""
    from pyspark.sql import SparkSession

    master_url = master or os.environ.get("SPARK_MASTER") or "local[*]"
    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    if master_url.startswith("local"):
        use_compiled_pyspark()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark would take the first python3 on the PATH
    builder = SparkSession.builder.appName(app_name).master(master_url)
    ours = session_settings(local_disk=master_url.startswith("local"))
    if master_url.startswith("local"):
        ours |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    for name, value in {**ours, **(settings or {})}.items():
        builder = builder.config(name, str(value))
    return builder.getOrCreate()


def use_compiled_pyspark() -> None:
    """Makes a home of Spark without the archive of pyspark, for a session that this process starts on this machine.
    Does nothing where SPARK_HOME is set.

    Spark's workers look for pyspark first in `python/lib/pyspark.zip`, out of which Python compiles each module anew in
    each of some ten processes: 0.6 s of CPU each. Without the archive they find the installed pyspark, which is
    compiled."""
    spec = find_spec("pyspark")
    if os.environ.get("SPARK_HOME") or spec is None or not spec.submodule_search_locations:
        return
    installed = Path(spec.submodule_search_locations[0])
    if not (installed / "jars").is_dir() or not (installed / "bin").is_dir():
        return
    home = Path(tempfile.mkdtemp(prefix="barnabas-spark-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in _PARTS_OF_HOME:
        if (installed / part).is_dir():
            (home / part).symlink_to(installed / part, target_is_directory=True)
    os.environ["SPARK_HOME"] = str(home)


def register(spark: "SparkSession") -> "SparkSession":
    """Makes `format("barnabas")` known to a session that was not made by `session`, and returns that session.

    Spark itself looks for data sources with the Python that the environment variable PYSPARK_PYTHON named when the
    session was started, by default the first `python3` on the PATH. A registered data source needs no look. Where the
    variable is not set and the session is local, its Python tasks run with this interpreter from now on.
    """
    from barnabas.spark.data_source import BarnabasDataSource

    context = None if _is_remote(spark) else spark.sparkContext
    if context is not None and context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    spark.dataSource.register(BarnabasDataSource)
    return spark


def _is_remote(spark: "SparkSession") -> bool:
    """Returns whether the session is Spark Connect's, which has no SparkContext."""
    return not hasattr(spark, "_jsparkSession")
