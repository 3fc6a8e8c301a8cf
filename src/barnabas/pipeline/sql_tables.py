"""Makes temporary views of the topics that a query names, and readable errors of Spark's."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.config.definitions import nearest
from barnabas.errors import UsageError
from barnabas.pipeline.errors import PipelineFailed
from barnabas.spark.source.sampling import newest_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Tables", "readable_errors"]

_NAME: Final = re.compile(r"`((?:[^`]|``)*)`")
_OURS: Final = re.compile(r"barnabas\.[\w.]+: (.+)")
_CAUSE: Final = re.compile(r"Caused by: [\w.$]+: (.+)")
_PLAIN: Final = re.compile(r"\w+")
_TABLES_MAX: Final = 100
_SAMPLE: Final = 1000


class Tables:
    """Makes a view when Spark's analysis of a query misses it: Spark knows which names are tables."""

    def __init__(self, spark: "SparkSession", topics: Sequence[str], options: Mapping[str, str]) -> None:
        self._spark = spark
        self._topics = topics
        self._options = options
        self.fields: dict[str, list[str]] = {}
        """The fields of the values of each topic that a query names."""
        self._query = ""

    def frame_of(self, query: str) -> "DataFrame":
        """Returns the frame of a query. Raises UsageError for an unknown topic, and what Spark raises."""
        from pyspark.errors import AnalysisException

        self._query = query
        for _ in range(_TABLES_MAX):
            try:
                return self._spark.sql(query)
            except AnalysisException as error:
                name = _missing(error)
                if name is None:
                    raise
                self._add(name)
        raise UsageError(f"the query names more than {_TABLES_MAX} tables")

    def hint_of_names(self) -> str:
        """Returns a hint if the query may have a name without its backquotes."""
        odd = [name for name in self._topics if not _PLAIN.fullmatch(name) and name in self._query]
        named = [name for name in odd if f"`{name}`" not in self._query]
        return f"; names with dots or dashes stand in backquotes: `{named[0]}`" if named else ""

    def _add(self, parts: list[str]) -> None:
        topic = self._topic(".".join(parts))
        if len(parts) > 1:
            raise UsageError(f"the name of topic {topic} has dots: write it in backquotes, `{topic}`")
        reader = self._spark.read.format("barnabas")
        for name, value in self._options_of(topic).items():
            reader = reader.option(name, value)
        frame = reader.load()
        kind = frame.schema["value"].dataType
        self.fields[topic] = getattr(kind, "names", [])
        frame.createOrReplaceTempView("`" + parts[0].replace("`", "``") + "`")

    def _topic(self, name: str) -> str:
        if name in self._topics:
            return name
        same = [topic for topic in self._topics if topic.lower() == name.lower()]
        if len(same) == 1:
            return same[0]
        close = nearest(name, self._topics, 0.6)
        hint = f"did you mean {close}?" if close else "`barnabas topics list` shows what there is"
        raise UsageError(f"there is no topic {name!r} at {self._options['kafka.bootstrap.servers']}; {hint}")

    def _options_of(self, topic: str) -> dict[str, str]:
        """Returns the options of a topic with the format and schema of its values, so that Spark does not infer them
        at each planning."""
        from barnabas.spark.formats.inference import ddl_of, infer_schema

        options = {**self._options, "subscribe": topic}
        asked = options["valueFormat"]
        if asked not in ("auto", "json") or "valueSchema" in options:
            return {**options, "valueFormat": "json"} if asked == "auto" else options
        looked_at = {name: value for name, value in options.items() if name != "valueFormat"}
        values, what = newest_values(looked_at, _SAMPLE)
        if asked == "auto":
            options["valueFormat"] = _format_of(values)
        if options["valueFormat"] == "json":
            options["valueSchema"] = ddl_of(infer_schema(values, what))
        return options


def _format_of(values: list[bytes | None]) -> str:
    """Returns json if most values are objects, string if all are UTF-8, else binary."""
    from barnabas.spark.formats.inference import infer_schema

    there = [value for value in values if value is not None]
    objects = [value for value in there if value.strip()[:1] == b"{" and value.strip()[-1:] == b"}"]
    if there and len(objects) * 2 > len(there):
        with contextlib.suppress(UsageError):
            infer_schema(objects, "the topic")
            return "json"
    try:
        for value in there:
            value.decode()
    except UnicodeDecodeError:
        return "binary"
    return "string"


def _missing(error: Any) -> list[str] | None:
    """Returns the parts of the name of a table that Spark does not know."""
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return None
    name = (error.getMessageParameters() or {}).get("relationName", "")
    return [part.replace("``", "`") for part in _NAME.findall(name)] or None


@contextlib.contextmanager
def readable_errors(tables: Tables) -> Iterator[None]:
    """Turns Spark's errors into one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise UsageError(_plain(str(error)) + _hint(error, tables)) from None
    except (PySparkException, Py4JError) as error:
        raise PipelineFailed(_plain(str(error))) from None


def _plain(text: str) -> str:
    """Returns the message of our own exception in Spark's, or the last cause that Spark names, or its first lines."""
    ours = _OURS.findall(text) or _CAUSE.findall(text)
    text = str(ours[-1]) if ours else text
    text = re.split(r"\n\n|;\n|\n== SQL|\nJVM stacktrace|\n\s+at ", text.strip(), maxsplit=1)[0]
    return re.sub(r"\s*SQLSTATE: \w+", "", text).strip()


def _hint(error: Any, tables: Tables) -> str:
    """Returns a hint for the mistakes of beginners: fields taken for columns, and names without backquotes."""
    condition = str(error.getCondition() or "")
    if condition.startswith(("PARSE", "INVALID_IDENTIFIER")):
        return tables.hint_of_names()
    if not condition.startswith("UNRESOLVED_COLUMN"):
        return ""
    wanted = _NAME.findall((error.getMessageParameters() or {}).get("objectName", ""))
    for topic, fields in tables.fields.items():
        if wanted and wanted[-1] in fields:
            return f" {wanted[-1]} is a field of the values of {topic}: write value.{wanted[-1]}"
    return ""
