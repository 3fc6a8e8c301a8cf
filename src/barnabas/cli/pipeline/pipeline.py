"""`barnabas pipeline`."""

import contextlib
import time
from pathlib import Path
from typing import Annotated, Any, Final

from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_BOOTSTRAP, Bootstrap, Cluster, Json
from barnabas.cli.framework.output import print_json, show, table, time_text
from barnabas.errors import BarnabasError, UsageError

app = App("Data pipelines on Spark: from topics to tables and back.")

_BROKER: Final = {"transaction.two.phase.commit.enable": "true"}
"""Lets the transactions that a batch has prepared outlive Spark."""
_Directory = Annotated[str, Argument("DIR", help="A pipeline's directory, or that of a checkpoint.")]
_Servers = Annotated[
    str | None,
    Option("--bootstrap", "-b", metavar="HOST:PORT,...", help="Brokers, where pipeline.toml does not name them."),
]
_Master = Annotated[str | None, Option("--master", metavar="URL", help="Spark's master; this machine's cores else.")]


@app.command(example="barnabas pipeline demo --limit 10000")
def demo(
    data_dir: Annotated[
        str, Option(metavar="DIR", help="Where broker, checkpoints, archive and pictures are kept.")
    ] = "data",
    listen: Annotated[
        str, Option(metavar="HOST:PORT", help="Where the broker listens; port 0 is any free one.")
    ] = "127.0.0.1:0",
    bootstrap: Annotated[
        str | None, Option("-b", metavar="HOST:PORT", help="Use this running broker and start none.")
    ] = None,
    limit: Annotated[
        int | None, Option(minimum=1, help="Only the first so many flights; a later run can go on.")
    ] = None,
    seconds: Annotated[
        float, Option(minimum=0, metavar="S", help="How long the second half of the replay takes.")
    ] = 10.0,
    master: _Master = None,
    clean: Annotated[bool, Option(help="Delete topics, checkpoints and archive first.")] = False,
    json: Json = False,
) -> int:
    """Run a year of flights through Spark and compare every figure with pandas.

    Starts a broker and replays the 336,776 flights that left New York in 2013, as they were scheduled. Spark archives
    the events as Parquet, joins them with airlines and airports (topics as tables) and writes delays per carrier and
    hour, exactly once, to a compacted topic. What comes out is checked, figure by figure, and drawn. The next run goes
    on from the checkpoints. Exit code 1 if any figure differs.
    """
    from barnabas.cli.framework.child_broker import broker_address
    from barnabas.cli.pipeline.terminal import TerminalDisplay, pipeline_failures
    from barnabas.pipeline.demo.report import require_matplotlib
    from barnabas.pipeline.demo.run import TIMEOUT_MS, PipelineDemo
    from barnabas.pipeline.display import Display
    from barnabas.pipeline.spark_process import require_spark

    require_spark()
    require_matplotlib()
    began = time.perf_counter()
    directory = Path(data_dir)
    with pipeline_failures(), broker_address(bootstrap, listen, directory / "broker", _BROKER, quiet=json) as address:
        settings = Cluster(address, TIMEOUT_MS / 1000).settings()
        display = Display() if json else TerminalDisplay()
        work = PipelineDemo(settings, directory / "flights-pipeline", limit, seconds, master, display)
        report = work.run(clean=clean)
    report["seconds"] = round(time.perf_counter() - began, 2)
    show(report, json, lambda: _text(report))
    return 0 if report["ok"] else 1


def _text(report: dict[str, Any]) -> str:
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report["phases"].items())
    new = "nothing new to replay" if not report["replayed"] else f"{report['replayed']:,} replayed now"
    hours, updates = f"{report['carriers_and_hours']:,} carriers and hours", f"{report['updates']:,} updates"
    verdict = "every figure equals that of pandas" if report["ok"] else "THE CHECK FAILED: see the lines above"
    lines = [
        "",
        f"flights   {report['flights']:,} in topic {report['topics']['events']}, {new}",
        f"archive   {report['archived']:,} events in Parquet",
        f"delays    {hours} in topic {report['topics']['delays']}, by {updates}",
        f"pictures  {', '.join(report['files'])}",
        f"times     {phases}",
        *(f"WRONG     {problem}" for problem in report["problems"]),
        "",
        f"{verdict}; {report['seconds']} s in all",
    ]
    return "\n".join(lines)


@app.command(example="barnabas pipeline init orders-archive --template archive")
def init(
    directory: Annotated[str, Argument("DIR", help="Made if it is not there.")],
    template: Annotated[
        str,
        Option(
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

    files = [*map(str, create(Path(directory), template, Cluster(bootstrap).address()))]
    then = f"look at them, create the topics, then: barnabas pipeline run {directory}"
    report = {"directory": directory, "template": template, "files": files}
    show(report, json, lambda: "\n".join([*(f"wrote {file}" for file in files), then]))


@app.command(example="barnabas pipeline run orders-archive --once")
def run(
    directory: Annotated[str, Argument("DIR", help="A pipeline's directory.")],
    master: _Master = None,
    once: Annotated[bool, Option(help="End when all that is there now is read.")] = False,
    every: Annotated[
        str,
        Option(
            metavar="TIME", help="How often a micro-batch begins: 500 ms, 30s, '2 minutes'; never without its unit."
        ),
    ] = "1 second",
    new: Annotated[bool, Option(help="Begin anew where a checkpoint is gone.")] = False,
    metrics_port: Annotated[
        int | None,
        Option(
            metavar="PORT", minimum=0, maximum=65535, help="Serve lag and throughput for Prometheus on this machine."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run a pipeline's queries, and show how far they are, until Ctrl-C.

    They go on from their checkpoints, in the directory checkpoints. What Spark says stands in spark.log. Where there
    is a spec file of spark-pipelines and no pipeline.py, that is run: again and again, whenever topics have grown.
    """
    from barnabas.cli.pipeline.terminal import TerminalDisplay, pipeline_failures
    from barnabas.pipeline.declarative_spec import find_spec_file
    from barnabas.pipeline.project import CODE_FILE

    spec_file = find_spec_file(Path(directory))
    display = TerminalDisplay(quiet=json)
    with pipeline_failures():
        if spec_file is not None and not (Path(directory) / CODE_FILE).exists():
            from barnabas.pipeline.declarative_runner import run_declarative

            if metrics_port is not None:
                raise UsageError(
                    "--metrics-port: flows of a declarative pipeline report to Spark alone; see `pipeline lag`"
                )
            names = run_declarative(spec_file, master, display, once=once, every=every, anew=new)
        else:
            from barnabas.pipeline.runner import run_project

            names = run_project(
                Path(directory), master, display, once=once, every=every, anew=new, metrics_port=metrics_port
            )
    done = f"done: {', '.join(names) or 'all is written'}"
    show({"directory": directory, "queries": names}, json, lambda: done)


@app.command(example="barnabas pipeline status orders-archive")
def status(directory: _Directory, bootstrap: _Servers = None, json: Json = False) -> None:
    """Show the last batch of each query, its throughput and its lag.

    All but the lag stands in the checkpoints; the lag is left out where no broker answers.
    """
    from barnabas.pipeline.brokers import end_offsets, open_admin
    from barnabas.pipeline.checkpoint import find_checkpoints, read_checkpoint
    from barnabas.pipeline.status import status_row

    rows = []
    with open_admin(_kafka(directory, bootstrap)) as admin:
        for path in find_checkpoints(Path(directory)):
            checkpoint = read_checkpoint(path)
            ends = None
            with contextlib.suppress(BarnabasError):
                ends = end_offsets(admin, checkpoint)
            rows.append(status_row(checkpoint, ends))
    headers = ("query", "batch", "state", "begun", "offsets/s", "lag", "watermark")
    cells = [
        (
            row["query"], row["batch"], row["state"], None if row["begun_ms"] is None else time_text(row["begun_ms"]),
            row["offsets_per_second"], row["lag"], time_text(row["watermark_ms"] or -1),
        )
        for row in rows
    ]  # fmt: skip
    way_out = f"cannot be read; see barnabas pipeline repair-checkpoint {directory}"
    unreadable = [f"{file} {way_out}" for row in rows for file in row["unreadable"]]
    show(rows, json, lambda: "\n".join([table(headers, cells), *unreadable]))


@app.command(example="barnabas pipeline lag orders-archive")
def lag(directory: _Directory, bootstrap: _Servers = None, json: Json = False) -> None:
    """Show for each partition up to where a query has read, and where the topic ends.

    By the checkpoints' last batch that is done, and what the brokers say now.
    """
    from barnabas.pipeline.brokers import end_offsets, open_admin
    from barnabas.pipeline.checkpoint import find_checkpoints, read_checkpoint
    from barnabas.pipeline.status import lag_rows

    rows = []
    with open_admin(_kafka(directory, bootstrap)) as admin:
        for path in find_checkpoints(Path(directory)):
            checkpoint = read_checkpoint(path)
            rows += lag_rows(checkpoint, end_offsets(admin, checkpoint))
    names = ("query", "topic", "partition", "read", "end", "lag")
    total = f"lag {sum(row['lag'] for row in rows):,}"
    show(rows, json, lambda: f"{table(names, [tuple(row.values()) for row in rows])}\n{total}")


@app.command(example="barnabas pipeline repair-checkpoint orders-archive")
def repair_checkpoint(
    directory: _Directory,
    yes: Annotated[bool, Option(help="Change the checkpoint; a copy of it is kept.")] = False,
    bootstrap: _Servers = None,
    json: Json = False,
) -> int:
    """Say what is wrong with a checkpoint, and put right what can be.

    Looks for files that are cut off or missing, for batches that the sink has and the checkpoint does not, for topics
    that were made again and offsets that are gone. Nothing is changed without --yes, and no query may run then; what
    `pipeline run` runs on this machine is noticed. Exit code 1 if anything is wrong and was not put right.
    """
    from barnabas.pipeline.brokers import open_admin
    from barnabas.pipeline.checkpoint import find_checkpoints
    from barnabas.pipeline.project import project_lock, project_of
    from barnabas.pipeline.repair import repair_checkpoint as repair

    reports = []
    project = project_of(Path(directory)) if yes else None
    lock = contextlib.nullcontext() if project is None else project_lock(project)
    with lock, open_admin(_kafka(directory, bootstrap)) as admin:
        for path in find_checkpoints(Path(directory)):
            reports.append(repair(admin, path, change=yes))
            if not json:
                print(_repair_text(reports[-1]), flush=True)
    if json:
        print_json(reports)
    return 1 if any(report["problems"] and not report["repaired"] for report in reports) else 0


def _repair_text(report: dict[str, Any]) -> str:
    path, problems = report["checkpoint"], report["problems"]
    lines = []
    if report["brokers_error"]:
        head = f"{path}: only the files were looked at, the brokers could not be asked for all: "
        lines.append(head + report["brokers_error"])
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
    """Returns the options of the pipeline's clients, unless --bootstrap names other brokers."""
    from barnabas.pipeline.project import SERVERS, load_settings, project_of

    if bootstrap is not None:
        return {SERVERS: bootstrap}
    project = project_of(Path(directory))
    return {SERVERS: DEFAULT_BOOTSTRAP} if project is None else dict(load_settings(project)["kafka"])
