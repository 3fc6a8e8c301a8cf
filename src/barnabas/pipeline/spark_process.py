"""A Spark session for the time of a `with` block. All its processes end with the block, also after an error."""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.process.log_format import OneLineFormatter
from barnabas.errors import UsageError
from barnabas.pipeline.errors import PipelineFailed, error_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "SMALL",
    "check_delta",
    "end_process",
    "end_with_parent",
    "java_process",
    "pause",
    "require_spark",
    "session_ended",
    "spark_process",
]

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
SMALL: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # compiled quickly rather than well: half of the CPU time of a run of a minute
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Settings for short runs on small machines."""
_DELTA: Final = re.compile(r"io\.delta:delta-spark_(\d+\.\d+)_")
"""Delta's package for a release of Spark, such as `io.delta:delta-spark_4.2_2.13:4.4.0`."""
_STOP_TIMEOUT_S: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1
"""A request to Linux to end the child with its parent. On other systems a killed parent leaves its children behind."""
_PYSPARK_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""pyspark's loggers that log each exception which is raised."""


def require_spark() -> None:
    """Raises UsageError where pyspark, or what goes with it, is missing."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        raise UsageError(f"pipelines need {', '.join(missing)}: pip install 'barnabas[spark]'")


def check_delta(settings: Mapping[str, Any]) -> None:
    """Raises UsageError where a session is to have Delta for another Spark than the one that is installed: its queries
    would fail after minutes."""
    import pyspark

    wanted = _DELTA.search(str(settings.get("spark.jars.packages", "")))
    if wanted is not None and not pyspark.__version__.startswith(f"{wanted[1]}."):
        raise UsageError(
            f"spark.jars.packages in pipeline.toml names Delta for Spark {wanted[1]}, but pyspark is "
            f"{pyspark.__version__}: pip install 'barnabas[delta]', or name the Delta that is made for it"
        )


@contextlib.contextmanager
def spark_process(name: str, log: Path, settings: Mapping[str, Any], master: str | None) -> Iterator["SparkSession"]:
    """Starts a session, and ends it with the block. The output of Spark's processes goes into the file `log`."""
    require_spark()
    from barnabas.spark.sessions import session

    with _output_to(log), _interrupts_deferred() as raise_deferred, _start_failures(log):
        spark = session(name, master=master, settings={**_SETTINGS, **settings})
    java = java_process()
    try:
        with _logged_to(log):
            raise_deferred()
            yield spark
    finally:
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # it would log each connection that is lost
        if java is not None:
            end_process(java)


def pause(seconds: float, log: Path) -> None:
    """Waits while the session is idle. Raises PipelineFailed at once when its JVM ends."""
    java = java_process()
    if java is None:
        time.sleep(seconds)
        return
    try:
        code = java.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    raise session_ended(code, log)


def session_ended(code: int, log: Path) -> PipelineFailed:
    """Returns the exception for a JVM that has ended."""
    return PipelineFailed(f"Spark's process has ended, with exit code {code}: see {log}, and run again")


def java_process() -> "subprocess.Popen[bytes] | None":
    """Returns the process of the JVM if pyspark has started it in this process."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


@contextlib.contextmanager
def _start_failures(log: Path) -> Iterator[None]:
    """Raises PipelineFailed where the JVM ends at its start, with the reason, which only the log has."""
    from pyspark.errors import PySparkRuntimeError

    before = log.stat().st_size
    try:
        yield
    except PySparkRuntimeError as error:
        with log.open(errors="replace") as file:
            file.seek(before)
            raise PipelineFailed(f"Spark does not start: {error_text(file.read())}") from error


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[Callable[[], None]]:
    """Defers Ctrl-C and SIGTERM until the function that it yields is called. A JVM whose start is interrupted would
    stay for good, because pyspark does not know its process yet. Spark's own signal handler, which is set meanwhile,
    would cancel jobs one by one."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    came: list[int] = []

    def raise_deferred() -> None:
        if came:
            handler = before[signal.Signals(came[0])]
            if callable(handler):
                handler(came[0], None)
            raise KeyboardInterrupt

    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield raise_deferred
    except Exception:
        raise_deferred()  # the JVM got the signal, too
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Redirects the standard error of processes that are started in the block."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def _logged_to(log: Path) -> Iterator[None]:
    """Sends our log lines and those of pyspark to the file; people see one line instead."""
    from pyspark.logger import PySparkLogger

    handler = logging.FileHandler(log)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    loggers = [logging.getLogger("barnabas.spark"), *map(PySparkLogger.getLogger, _PYSPARK_LOGGERS)]
    kept = [(logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        for logger, (handlers, propagate) in zip(loggers, kept, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
        handler.close()


def end_process(process: "subprocess.Popen[Any]") -> None:
    """Terminates a process, and kills it if that does not help. A JVM that is terminated removes its temporary files,
    and its Python workers end."""
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_with_parent() -> None:
    """Has the kernel send SIGTERM to this process when its parent dies. A child calls it before `exec`."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
