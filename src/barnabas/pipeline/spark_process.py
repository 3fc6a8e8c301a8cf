"""A Spark session for as long as a `with` block lasts; nothing of it is left afterwards, whatever ends the block."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.process.log_format import OneLineFormatter
from barnabas.cli.output import CommandFailed
from barnabas.errors import UsageError
from barnabas.pipeline.queries import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QUICKLY", "end_process", "java_process", "need_spark", "pause", "session_ended", "spark_process"]

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
QUICKLY: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # compiled quickly rather than well: half of the CPU time of a run of a minute
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For short runs on small machines."""
_STOP_TIMEOUT_S: Final = 5.0
_PYSPARK_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""They log each error that is raised."""


def need_spark() -> None:
    """Raises UsageError where pyspark, or what goes with it, is missing."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        raise UsageError(f"pipelines need {', '.join(missing)}: pip install 'barnabas[spark]'")


@contextlib.contextmanager
def spark_process(name: str, log: Path, settings: Mapping[str, Any], master: str | None) -> Iterator["SparkSession"]:
    """What Spark's processes say goes into the file `log`."""
    need_spark()
    from barnabas.spark.sessions import session

    with _output_to(log), _interrupts_put_off() as raise_put_off, _start_told(log):
        spark = session(name, master=master, settings={**_SETTINGS, **settings})
    java = java_process()
    try:
        with _logged_to(log):
            raise_put_off()
            yield spark
    finally:
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # it would tell of each connection that is gone
        if java is not None:
            end_process(java)


def pause(seconds: float, log: Path) -> None:
    """For a while in which nobody asks the session for anything. Raises CommandFailed at once when its JVM ends."""
    java = java_process()
    if java is None:
        time.sleep(seconds)
        return
    try:
        code = java.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    raise session_ended(code, log)


def session_ended(code: int, log: Path) -> CommandFailed:
    """For whoever finds that the JVM is gone."""
    return CommandFailed(f"Spark's process has ended, with exit code {code}: see {log}, and run again")


def java_process() -> "subprocess.Popen[bytes] | None":
    """The JVM, where it is ours."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


@contextlib.contextmanager
def _start_told(log: Path) -> Iterator[None]:
    """Why a JVM has ended at once it has told the log alone. Raises CommandFailed with that."""
    from pyspark.errors import PySparkRuntimeError

    before = log.stat().st_size
    try:
        yield
    except PySparkRuntimeError as error:
        with log.open(errors="replace") as file:
            file.seek(before)
            raise CommandFailed(f"Spark does not start: {told(file.read())}") from error


@contextlib.contextmanager
def _interrupts_put_off() -> Iterator[Callable[[], None]]:
    """Ctrl-C and SIGTERM wait for the end of the block, and for a call of what this gives. A JVM whose start is cut
    short would stay for good, as nobody knows of it yet. And Spark's own handler, set meanwhile, cancels its jobs one
    by one."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    came: list[int] = []

    def raise_put_off() -> None:
        if came:
            handler = before[signal.Signals(came[0])]
            if callable(handler):
                handler(came[0], None)
            raise KeyboardInterrupt

    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield raise_put_off
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Processes that are started in the block write their errors there."""
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
    """What we and pyspark log goes there, too: whoever runs a command is told in one line."""
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
    """A JVM's shutdown hooks remove what is temporary, and Python workers end with it: so it is asked first."""
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
