"""The commands of `barnabas pipeline`: what can be given, and what is printed. The work is done elsewhere."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from barnabas.cli.app import App, Option
from barnabas.cli.options import Json
from barnabas.cli.output import print_json

app = App("Data pipelines on Spark: from topics to tables and back.")

_BROKER: Final = {"transaction.two.phase.commit.enable": "true"}
"""So that what a batch has left open outlives Spark."""
_Master = Annotated[str | None, Option("--master", metavar="URL", help="Spark's master; this machine's cores else.")]


@app.command()
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
    from barnabas.pipeline.demo.run import PipelineDemo

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
