"""Errors of queries, and the names in them. No session."""

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, ParseException, PySparkException

from barnabas.errors import UsageError
from barnabas.pipeline.errors import PipelineFailed
from barnabas.pipeline.sql_tables import Tables, readable_errors


class FakeSession:
    """A session that knows no table, and no dashes."""

    def sql(self, query: str) -> None:
        name = query.rpartition(" ")[2]
        if "-" in name:
            raise ParseException("Syntax error at or near '-'", "PARSE_SYNTAX_ERROR", {})
        quoted = name if "`" in name else ".".join(f"`{part}`" for part in name.split("."))
        raise AnalysisException("no table", "TABLE_OR_VIEW_NOT_FOUND", {"relationName": quoted})


def tables_of(*topics: str) -> Tables:
    return Tables(FakeSession(), topics, {"kafka.bootstrap.servers": "host:1", "valueFormat": "json"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT * FROM ordrs", r"there is no topic 'ordrs' at host:1; did you mean orders\?"),
        ("SELECT * FROM zzz", "there is no topic 'zzz' at host:1; `barnabas topics list` shows"),
        ("SELECT * FROM my.topic", r"the name of topic my\.topic has dots: write it in backquotes, `my\.topic`"),
        ("SELECT * FROM MY.topic", r"the name of topic my\.topic has dots"),
    ],
)
def test_names_that_are_no_topics(query: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        tables_of("orders", "my.topic").frame_of(query)


def test_errors_of_spark_become_one_line() -> None:
    long = (
        "An error\n\nJVM stacktrace:\nCaused by: java.lang.Odd: first\n\tat a\nCaused by: b.C: the last cause\n\tat b"
    )
    with pytest.raises(PipelineFailed, match=r"^the last cause$"), readable_errors(tables_of()):
        raise PySparkException(long)
    ours = f"{long}\nbarnabas.errors.CorruptMessage: t-0: damaged\n"
    with pytest.raises(PipelineFailed, match=r"^t-0: damaged$"), readable_errors(tables_of()):
        raise PySparkException(ours)


def test_hints_for_names_without_backquotes_and_for_fields() -> None:
    tables = tables_of("my-topic", "orders")
    with (
        pytest.raises(UsageError, match=r"at or near '-'; names .* in backquotes: `my-topic`"),
        readable_errors(tables),
    ):
        tables.frame_of("SELECT * FROM my-topic")
    tables.fields["orders"] = ["id"]
    parameters = {"objectName": "`orders`.`id`", "proposal": "`value`"}
    with (
        pytest.raises(UsageError, match=r"id is a field of the values of orders: write value\.id"),
        readable_errors(tables),
    ):
        raise AnalysisException("no column", "UNRESOLVED_COLUMN.WITH_SUGGESTION", parameters)
