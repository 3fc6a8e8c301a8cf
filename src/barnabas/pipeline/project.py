"""A pipeline's directory: `pipeline.toml` with its settings, `pipeline.py` with its queries, later its checkpoints."""

import contextlib
import fcntl
import importlib.util
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.config.definitions import nearest
from barnabas.errors import UsageError

__all__ = [
    "CODE_FILE",
    "DELTA",
    "SERVERS",
    "SETTINGS_FILE",
    "SPEC_FILE",
    "TEMPLATES",
    "Project",
    "check_storage",
    "create",
    "load",
    "load_settings",
    "project_lock",
    "project_of",
]

_TEMPLATE_HOME: Final = Path(__file__).parent / "templates"
SETTINGS_FILE: Final = "pipeline.toml"
CODE_FILE: Final = "pipeline.py"
SPEC_FILE: Final = "spark-pipeline.yml"
_LOCK: Final = ".running"
_TRANSFORMATIONS: Final = "transformations"
_QUOTED: Final = re.compile(r"[^\w./@:+=,~-]")
"""Characters that a URI escapes, and some more."""
SERVERS: Final = "bootstrap.servers"


class Template(NamedTuple):
    """A pipeline that `barnabas pipeline init` can write."""

    summary: str
    settings: Mapping[str, str]
    """The settings that its module reads besides name and kafka, with their defaults."""
    is_declarative: bool = False
    spark: Mapping[str, str] = {}
    """Settings that its Spark session needs."""


DELTA: Final = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # for tables of laptops; Delta's 50 take most of a batch's time
}
"""Settings of a Spark 4.2 session for the newest release of Delta."""

TEMPLATES: Final[Mapping[str, Template]] = {
    "bronze-silver-gold": Template(
        "raw records as Parquet, clean ones as a topic, figures by the hour as a compacted topic",
        {"source": "orders", "bronze": "bronze", "silver": "orders-clean", "gold": "orders-by-hour"},
    ),
    "archive": Template("a topic to Parquet, by day", {"source": "orders", "archive": "archive", "format": "parquet"}),
    "backfill": Template(
        "an archive, or some days of it, back to a topic",
        {
            "source": "orders",
            "archive": "archive",
            "format": "parquet",
            "target": "orders-again",
            "version": "1",
            "from_day": "",
            "to_day": "",
        },
    ),
    "copy": Template("topic to topic", {"source": "orders", "target": "orders-copy"}),
    "cdc": Template("a change feed to a table", {"source": "customers", "table": "table"}),
    "merge": Template("a change feed to a Delta table", {"source": "customers", "table": "table"}, spark=DELTA),
    "dead-letters": Template(
        "what is not of the right form to a topic of its own",
        {"source": "orders", "target": "orders-good", "dead_letters": "orders-dead"},
    ),
    "declarative": Template(
        "bronze, silver and gold for spark-pipelines: tables, dead letters, and a topic again",
        {"source": "orders", "silver": "orders-clean", "dead_letters": "orders-dead"},
        is_declarative=True,
    ),
}
_PATHS: Final = ("archive", "bronze", "table")
"""Settings that are directories; relative ones lie within the project."""


class Project(NamedTuple):
    """A pipeline's settings and code."""

    directory: Path
    settings: dict[str, Any]
    start: Callable[..., Any]

    @property
    def checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    def checkpoint_paths(self) -> list[Path]:
        return sorted(path.parent for path in self.checkpoints.glob("*/metadata"))

    def stages(self, spark: Any, trigger: Mapping[str, Any]) -> Iterator[list[Any]]:
        """Starts the queries, and yields them in stages.

        The project's `start` returns all queries in one list, or yields lists where the queries of one list read what
        those of the list before write. A run with `--once` waits for each stage before it asks for the next.
        """
        found = self.start(spark, self.settings, str(self.checkpoints.resolve()), dict(trigger))
        if isinstance(found, Iterator):
            yield from found
        else:
            yield list(found)


def create(directory: Path, template: str, servers: str) -> list[Path]:
    """Writes a new project. Raises UsageError for an unknown template, or a directory with a project."""
    if template not in TEMPLATES:
        close = nearest(template, TEMPLATES, 0.6)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(TEMPLATES)}"
        raise UsageError(f"--template {template}: there is no such template; {hint}")
    code = (_TEMPLATE_HOME / f"{template.replace('-', '_')}.py").read_text(encoding="utf-8")
    files = {directory / SETTINGS_FILE: _settings_text(directory.resolve().name, template, servers)}
    if TEMPLATES[template].is_declarative:
        storage = f"file://{directory.resolve()}/storage"
        check_storage(directory / SPEC_FILE, storage)
        files[directory / SPEC_FILE] = _spec_text(directory.resolve().name, storage)
        files[directory / _TRANSFORMATIONS / "layers.py"] = code
    else:
        files[directory / CODE_FILE] = code
    for file in files:
        if file.exists():
            raise UsageError(f"{file} is there already; choose another directory, or remove it first")
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return list(files)


def _settings_text(name: str, template: str, servers: str) -> str:
    found = TEMPLATES[template]
    lines = [f"# {template}: {found.summary}", f'name = "{name}"']
    lines += [f'{key} = "{value}"' for key, value in found.settings.items()]
    lines += [
        "",
        '# Options of format("barnabas") for all queries; settings of its clients begin with kafka.',
        "[kafka]",
    ]
    lines += [f'"{SERVERS}" = "{servers}"', "", "# Of the Spark session", "[spark]"]
    lines += [f'"{key}" = "{value}"' for key, value in {"spark.sql.shuffle.partitions": "2", **found.spark}.items()]
    lines += [""]
    return "\n".join(lines)


def check_storage(file: Path, storage: str) -> None:
    """Raises UsageError for a storage that Spark 4.3 keeps under another name (`a b` in `a%20b`), where its checkpoints
    would not be found. `file`: the spec file."""
    found = _QUOTED.search(storage)
    if found is not None:
        raise UsageError(
            f"{file}: as {found.group()!r} is in it, Spark may keep the storage {storage} in another place than it"
            " says; choose a directory without spaces, %, # and the like: letters, digits and . _ - + = , ~ @ :"
        )


def _spec_text(name: str, storage: str) -> str:
    """Returns the spec file's YAML, in which JSON's texts are valid."""
    lines = [
        "# For spark-pipelines; topics and brokers are in pipeline.toml.",
        f"name: {json.dumps(name)}",
        "# Where checkpoints are kept; must be absolute.",
        f"storage: {json.dumps(storage)}",
        "libraries:",
        f"  - glob: {{include: {_TRANSFORMATIONS}/**}}",
        "",
    ]
    return "\n".join(lines)


def load_settings(directory: Path) -> dict[str, Any]:
    """Reads `pipeline.toml`. Raises UsageError."""
    file = directory / SETTINGS_FILE
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{file} is not there: {directory} is no pipeline; `barnabas pipeline init {directory}` makes one"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is no TOML: {error}") from None
    for table in ("kafka", "spark"):
        if not isinstance(found.setdefault(table, {}), dict):
            raise UsageError(f"{file}: {table} must be a table, [{table}]")
        found[table] = {name: str(value) for name, value in found[table].items()}
    if not {SERVERS, f"kafka.{SERVERS}"} & found["kafka"].keys():
        close = nearest(SERVERS, found["kafka"])
        raise UsageError(
            f'{file}: [kafka] needs "{SERVERS}" = "host:port"' + (f"; did you mean that by {close}?" if close else "")
        )
    found.setdefault("name", directory.resolve().name)
    for name in _PATHS:
        if isinstance(found.get(name), str) and "://" not in found[name]:
            found[name] = str((directory / found[name]).resolve())
    return found


def project_of(path: Path) -> Path | None:
    """Returns the directory of the project that `path` is or lies in: a flow's checkpoint is seven levels down."""
    return next((each for each in (path, *path.resolve().parents[:7]) if (each / SETTINGS_FILE).exists()), None)


@contextlib.contextmanager
def project_lock(directory: Path) -> Iterator[None]:
    """Locks the project. Raises UsageError where another process runs it: two runs would fence each other, batch after
    batch."""
    try:
        file = (directory / _LOCK).open("a")
    except OSError as error:
        raise UsageError(f"{directory} cannot be run: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process runs {directory}; stop that first") from None
        yield


def load(directory: Path) -> Project:
    """Imports a project. Raises UsageError, and what its code raises while it is imported."""
    settings = load_settings(directory)
    file = directory / CODE_FILE
    if not file.exists():
        raise UsageError(f"{file} is not there; it must have a function start(spark, settings, checkpoints, trigger)")
    spec = importlib.util.spec_from_file_location("pipeline", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{file}, line {error.lineno}: {error.msg}") from None
    start = getattr(module, "start", None)
    if not callable(start):
        raise UsageError(f"{file} must have a function start(spark, settings, checkpoints, trigger)")
    return Project(directory, settings, start)
