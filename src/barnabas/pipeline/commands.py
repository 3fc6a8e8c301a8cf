"""The commands of `barnabas pipeline`: what can be given, and what is printed. The work is done elsewhere."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from barnabas.cli.app import App, Argument, Option
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Cluster, Json
from barnabas.cli.output import notice, print_json, table, time_text
from barnabas.errors import BarnabasError, UsageError

if TYPE_CHECKING:
    from barnabas import Admin

app = App("Data pipelines on Spark: from topics to tables and back.")

_BROKER: Final = {"transaction.two.phase.commit.enable": "true"}
"""So that what a batch has left open outlives Spark."""
_Directory = Annotated[str, Argument("DIR", help="A pipeline's directory, or that of a checkpoint.")]
_Servers = Annotated[
    str | None,
    Option("--bootstrap", "-b", metavar="HOST:PORT,...", help="Brokers, where pipeline.toml does not name them."),
]
_Master = Annotated[str | None, Option("--master", metavar="URL", help="Spark's master; this machine's cores else.")]


@app.command(example="barnabas pipeline demo --limit 10000")
def demo(
    data_dir: Annotated[
        str, Option("--data-dir", metavar="DIR", help="Where broker, checkpoints, archive and pictures are kept.")
    ] = "data",
    listen: Annotated[
        str, Option("--listen", metavar="HOST:PORT", help="Where the broker listens; port 0 is any free one.")
    ] = "127.0.0.1:0",
    bootstrap: Annotated[
        str | None, Option("--bootstrap", "-b", metavar="HOST:PORT", help="Use this running broker and start none.")
    ] = None,
    limit: Annotated[
        int | None, Option("--limit", minimum=1, help="Only the first so many flights; a later run can go on.")
    ] = None,
    seconds: Annotated[
        float, Option("--seconds", minimum=0, metavar="S", help="How long the second half of the replay takes.")
    ] = 10.0,
    master: _Master = None,
    clean: Annotated[bool, Option("--clean", help="Delete topics, checkpoints and archive first.")] = False,
    json: Json = False,
) -> int:
    """Run a year of flights through Spark and compare every figure with pandas.

    Starts a broker and replays the 336,776 flights that left New York in 2013, as they were scheduled. Spark archives
    the events as Parquet, joins them with airlines and airports (topics as tables) and writes delays per carrier and
    hour, exactly once, to a compacted topic. What comes out is checked, figure by figure, and drawn. The next run goes
    on from the checkpoints. Exit code 1 if any figure differs.
    """
    from barnabas.pipeline.demo.report import need_matplotlib
    from barnabas.pipeline.demo.run import PipelineDemo
    from barnabas.pipeline.spark_process import need_spark

    need_spark()
    need_matplotlib()
    began = time.perf_counter()
    directory = Path(data_dir)
    with _broker(bootstrap, listen, directory / "broker", quiet=json) as address:
        work = PipelineDemo(address, directory / "flights-pipeline", limit, seconds, master, quiet=json)
        report = work.run(clean=clean)
    report["seconds"] = round(time.perf_counter() - began, 2)
    if json:
        print_json(report)
    else:
        print(_text(report))
    return 0 if report["ok"] else 1


@contextlib.contextmanager
def _broker(bootstrap: str | None, listen: str, directory: Path, *, quiet: bool) -> Iterator[str]:
    """The address of a running broker: the given one, or a child process's, which ends with the block."""
    if bootstrap is not None:
        yield bootstrap
        return
    from barnabas.cli.child_broker import ChildBroker

    with ChildBroker(directory, listen, _BROKER) as child:
        if not quiet:
            print(f"broker ready at {child.address} after {child.ready_s:.2f} s, data in {directory}", flush=True)
        yield child.address


def _text(report: dict[str, Any]) -> str:
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report["phases"].items())
    new = "nothing new to replay" if not report["replayed"] else f"{report['replayed']:,} replayed now"
    hours, updates = f"{report['carriers_and_hours']:,} carriers and hours", f"{report['updates']:,} updates"
    lines = [
        "",
        f"flights   {report['flights']:,} in topic {report['topics']['events']}, {new}",
        f"archive   {report['archived']:,} events in Parquet",
        f"delays    {hours} in topic {report['topics']['delays']}, by {updates}",
        f"pictures  {', '.join(report['files'])}",
        f"times     {phases}",
        *(f"WRONG     {problem}" for problem in report["problems"]),
        "",
        ("every figure equals that of pandas" if report["ok"] else "THE CHECK FAILED: see the lines above")
        + f"; {report['seconds']} s in all",
    ]
    return "\n".join(lines)


@app.command(example="barnabas pipeline init orders-archive --template archive")
def init(
    directory: Annotated[str, Argument("DIR", help="Made if it is not there.")],
    template: Annotated[
        str,
        Option(
            "--template",
            "-t",
            metavar="NAME",
            help="copy, archive, backfill, cdc, merge, dead-letters, bronze-silver-gold, declarative.",
        ),
    ] = "copy",
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Write a pipeline to begin with: settings in pipeline.toml, queries in pipeline.py.

    copy: topic to topic. archive: a topic to Parquet. backfill: an archive back to a topic. cdc: a change feed to a
    table in Parquet. merge: the same to a Delta table. dead-letters: what is not of the right form to a topic of its
    own. bronze-silver-gold: raw records as Parquet, clean ones as a topic, figures by the hour as a compacted topic.
    declarative: the same for spark-pipelines, with tables (spark-pipeline.yml and the directory transformations instead
    of pipeline.py).
    """
    from barnabas.pipeline.project import create

    files = create(Path(directory), template, Cluster(bootstrap).address())
    if json:
        print_json({"directory": directory, "template": template, "files": [str(file) for file in files]})
        return
    for file in files:
        print(f"wrote {file}")
    print(f"look at them, create the topics, then: barnabas pipeline run {directory}")


@app.command(example="barnabas pipeline run orders-archive --once")
def run(
    directory: Annotated[str, Argument("DIR", help="A pipeline's directory.")],
    master: _Master = None,
    once: Annotated[bool, Option("--once", help="End when all that is there now is read.")] = False,
    every: Annotated[
        str,
        Option(
            "--every",
            metavar="TIME",
            help="How often a micro-batch begins: 500 ms, 30s, '2 minutes'; never without its unit.",
        ),
    ] = "1 second",
    new: Annotated[bool, Option("--new", help="Begin anew where a checkpoint is gone.")] = False,
    metrics_port: Annotated[
        int | None,
        Option(
            "--metrics-port",
            metavar="PORT",
            minimum=0,
            maximum=65535,
            help="Serve lag and throughput for Prometheus on this machine.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run a pipeline's queries, and show how far they are, until Ctrl-C.

    They go on from their checkpoints, in the directory checkpoints. What Spark says stands in spark.log. Where there
    is a spec file of spark-pipelines and no pipeline.py, that is run: again and again, whenever topics have grown.
    """
    from barnabas.pipeline.declarative import find_spec_file
    from barnabas.pipeline.project import CODE_FILE

    spec_file = find_spec_file(Path(directory))
    if spec_file is not None and not (Path(directory) / CODE_FILE).exists():
        from barnabas.pipeline.declarative_running import run_declarative

        if metrics_port is not None:
            raise UsageError(
                "--metrics-port: flows of a declarative pipeline report to Spark alone; see `pipeline lag`"
            )
        show = notice if json else print
        names = run_declarative(spec_file, master, once=once, every=every, anew=new, show=show)
    else:
        from barnabas.pipeline.running import run_project

        names = run_project(
            Path(directory), master, once=once, every=every, anew=new, metrics_port=metrics_port, quiet=json
        )
    if json:
        print_json({"directory": directory, "queries": names})
        return
    print(f"done: {', '.join(names) if names else 'all is written'}")


@app.command(example="barnabas pipeline status orders-archive")
def status(directory: _Directory, bootstrap: _Servers = None, json: Json = False) -> None:
    """Show the last batch of each query, its throughput and its lag.

    All but the lag stands in the checkpoints; the lag is left out where no broker answers.
    """
    from barnabas.pipeline.checkpoint import find_checkpoints, read_checkpoint
    from barnabas.pipeline.tending import admin_of, ends_of, status_row

    rows = []
    with admin_of(_kafka(directory, bootstrap)) as admin:
        for path in find_checkpoints(Path(directory)):
            checkpoint = read_checkpoint(path)
            ends = None
            with contextlib.suppress(BarnabasError):
                ends = ends_of(admin, checkpoint)
            rows.append(status_row(checkpoint, ends))
    if json:
        print_json(rows)
        return
    headers = ("query", "batch", "state", "begun", "offsets/s", "lag", "watermark")
    cells = [
        [
            *(row[name] for name in ("query", "batch", "state")),
            None if row["begun_ms"] is None else time_text(row["begun_ms"]),
            *(row[name] for name in ("offsets_per_second", "lag")),
            time_text(row["watermark_ms"]) if row["watermark_ms"] else None,
        ]
        for row in rows
    ]
    print(table(headers, cells))
    for row in rows:
        for file in row["unreadable"]:
            print(f"{file} cannot be read; see barnabas pipeline repair-checkpoint {directory}")


@app.command(example="barnabas pipeline lag orders-archive")
def lag(directory: _Directory, bootstrap: _Servers = None, json: Json = False) -> None:
    """Show for each partition up to where a query has read, and where the topic ends.

    By the checkpoints' last batch that is done, and what the brokers say now.
    """
    from barnabas.pipeline.checkpoint import find_checkpoints, read_checkpoint
    from barnabas.pipeline.tending import admin_of, ends_of, lag_rows

    rows = []
    with admin_of(_kafka(directory, bootstrap)) as admin:
        for path in find_checkpoints(Path(directory)):
            checkpoint = read_checkpoint(path)
            rows += lag_rows(checkpoint, ends_of(admin, checkpoint))
    if json:
        print_json(rows)
        return
    names = ("query", "topic", "partition", "read", "end", "lag")
    print(table(names, [[row[name] for name in names] for row in rows]))
    print(f"lag {sum(row['lag'] for row in rows):,}")


@app.command(example="barnabas pipeline repair-checkpoint orders-archive")
def repair_checkpoint(
    directory: _Directory,
    yes: Annotated[bool, Option("--yes", help="Change the checkpoint; a copy of it is kept.")] = False,
    bootstrap: _Servers = None,
    json: Json = False,
) -> int:
    """Say what is wrong with a checkpoint, and put right what can be.

    Looks for files that are cut off or missing, for batches that the sink has and the checkpoint does not, for topics
    that were made again and offsets that are gone. Nothing is changed without --yes, and no query may run then; what
    `pipeline run` runs on this machine is noticed. Exit code 1 if anything is wrong and was not put right.
    """
    from barnabas.pipeline.checkpoint import find_checkpoints
    from barnabas.pipeline.project import alone, home_of
    from barnabas.pipeline.tending import admin_of

    reports = []
    home = home_of(Path(directory)) if yes else None
    with contextlib.nullcontext() if home is None else alone(home), admin_of(_kafka(directory, bootstrap)) as admin:
        for path in find_checkpoints(Path(directory)):
            reports.append(_repair(admin, path, yes))
            if not json:
                print(_repair_text(reports[-1]), flush=True)
    if json:
        print_json(reports)
    return 1 if any(report["problems"] and not report["repaired"] for report in reports) else 0


def _repair(admin: "Admin", path: Path, yes: bool) -> dict[str, Any]:
    """Look at a checkpoint, put it right if all that is wrong can be and `yes`, and report."""
    from barnabas.pipeline.checkpoint import read_checkpoint
    from barnabas.pipeline.diagnosis import find_problems
    from barnabas.pipeline.tending import backup_of, repair, view

    checkpoint = read_checkpoint(path)
    broker, unanswered = None, None
    try:
        broker = view(admin, checkpoint)
    except BarnabasError as error:
        unanswered = str(error)
    problems = find_problems(checkpoint, broker)
    repairs = yes and bool(problems) and all(problem.changes is not None for problem in problems)
    backup = backup_of(path) if repairs else None
    if backup is not None:
        repair(path, problems, backup)
    return {
        "checkpoint": str(path),
        "brokers_error": unanswered,
        "problems": [
            {"problem": problem.what, "way_out": problem.way_out, "repairable": problem.changes is not None}
            for problem in problems
        ],
        "repaired": repairs,
        "backup": None if backup is None else str(backup),
    }


def _repair_text(report: dict[str, Any]) -> str:
    path, problems = report["checkpoint"], report["problems"]
    lines = []
    if report["brokers_error"]:
        lines.append(f"{path}: only the files were looked at, the brokers could not be asked for all: ")
        lines[-1] += report["brokers_error"]
    if not problems:
        return "\n".join([*lines, f"{path}: nothing is wrong"])
    lines += [f"{path}: {problem['problem']}\n    {problem['way_out']}" for problem in problems]
    helpless = sum(not problem["repairable"] for problem in problems)
    if helpless:
        what = f"not to be put right here: {helpless} of {len(problems)} problems; nothing was changed"
    elif report["repaired"]:
        what = f"repaired; as it was: {report['backup']}"
    else:
        what = "nothing was changed; --yes puts that right, and keeps a copy"
    return "\n".join([*lines, f"{path}: {what}"])


def _kafka(directory: str, bootstrap: str | None) -> dict[str, str]:
    """How the brokers are reached: as the pipeline does it, unless said otherwise."""
    from barnabas.pipeline.project import SERVERS, home_of, load_settings

    if bootstrap is not None:
        return {SERVERS: bootstrap}
    home = home_of(Path(directory))
    return {SERVERS: DEFAULT_BOOTSTRAP} if home is None else dict(load_settings(home)["kafka"])
