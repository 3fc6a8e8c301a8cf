"""`barnabas sql`. Spark is imported when all else is checked."""

import contextlib
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json, parse_settings
from barnabas.errors import UsageError

app = App("Ask topics in SQL; Spark runs in this process.")

FORMATS: Final = ("auto", "binary", "string", "json", "avro", "confluent-avro", "protobuf")
_SHOWN_ROWS: Final = 100


@app.command("", example="barnabas sql 'SELECT value.carrier, count(*) FROM flights GROUP BY 1'")
def sql(
    query: Annotated[str, Argument("QUERY", "What to ask; the tables are topics.")],
    value_format: Annotated[
        str, Option(choices=FORMATS, help="What values are; auto looks at the newest of each topic.")
    ] = "auto",
    key_format: Annotated[str, Option(choices=("string", "binary"), help="What keys are.")] = "string",
    option: Annotated[
        list[str] | None,
        Option("-o", metavar="NAME=VALUE", help="An option of the source, valueSchema for one; repeat for more."),
    ] = None,
    limit: Annotated[
        int | None, Option("-n", minimum=0, help="The most rows to print, 0 for all. 100 in tables.")
    ] = None,
    csv: Annotated[bool, Option(help="Rows as CSV, with names first.")] = False,
    master: Annotated[str | None, Option(metavar="URL", help="Spark's master; this machine's cores else.")] = None,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Ask topics in SQL.

    Each topic that the query names is a table with the columns key, value, topic, partition, offset, timestamp and
    timestampType. Of JSON values the fields are within value (value.carrier); what does not parse is in _corrupt.
    Names with dots or dashes stand in backquotes. The topics are read from the beginning to the end that they have
    now; --option startingTimestamp=... and its like read less of them. Rows are printed as a table, as CSV, or with
    --json as one object a line. Needs the extra spark and Java.
    """
    from barnabas.cli.pipeline.terminal import pipeline_failures
    from barnabas.pipeline.spark_process import require_spark, spark_process

    require_spark()
    if json and csv:
        raise UsageError("--json and --csv contradict each other; give one of them")
    most = limit if limit is not None else 0 if json or csv else _SHOWN_ROWS
    with cluster.admin() as admin:
        topics = [topic.name for topic in admin.list_topics(internal=True)]
    source = _source_options(cluster.settings(), value_format, key_format, option)
    with pipeline_failures(), tempfile.TemporaryDirectory(prefix="barnabas-sql-") as directory:
        with _waiting("starting Spark"):
            began = time.perf_counter()
            context = spark_process("barnabas sql", Path(directory) / "spark.log", {"spark.log.level": "ERROR"}, master)
            stack = contextlib.ExitStack()
            logging.disable(logging.CRITICAL)  # the exception says what pyspark and py4j log
            spark = stack.enter_context(context)
            started_s = time.perf_counter() - began
        with stack:
            _answer(spark, query, topics, source, most, "json" if json else "csv" if csv else "table", started_s)


def _source_options(
    client: dict[str, object], value_format: str, key_format: str, given: list[str] | None
) -> dict[str, str]:
    found = {f"kafka.{name}": str(value) for name, value in client.items()}
    return {**found, "valueFormat": value_format, "keyFormat": key_format, **parse_settings(given or (), "--option")}


def _answer(
    spark: Any, query: str, topics: list[str], source: dict[str, str], most: int, form: str, started_s: float
) -> None:
    from barnabas.cli.pipeline.sql_output import print_rows
    from barnabas.pipeline.sql_tables import Tables, readable_errors

    tables = Tables(spark, topics, source)
    began = time.perf_counter()
    with readable_errors(tables):
        with _waiting("reading"):
            frame = tables.frame_of(query)
        count = print_rows(frame, most, form)
    if form == "table" or sys.stderr.isatty():
        more = "" if not most or count <= most else "; there are more: --limit 0 prints all"
        rows = min(count, most) if most else count
        took = time.perf_counter() - began
        text = f"{rows} row{'s' * (rows != 1)} in {took:.1f} s; Spark took {started_s:.1f} s to start{more}"
        print(text, file=sys.stderr)


@contextlib.contextmanager
def _waiting(what: str) -> Iterator[None]:
    """Shows on terminals what the command waits for."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield
