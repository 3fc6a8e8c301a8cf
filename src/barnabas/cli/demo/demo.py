"""`barnabas demo`: sends real data through a broker and back, and counts every figure from what comes back."""

import time
from pathlib import Path
from typing import Annotated, Any, Final

from barnabas.cli.framework.app import App, Option
from barnabas.cli.framework.options import Json
from barnabas.cli.framework.output import show, size_text, table
from barnabas.cli.framework.resources import check_topic_name
from barnabas.errors import UsageError

SETTINGS: Final = {"group.initial.rebalance.delay.ms": "500"}
"""The default delay is three seconds; no other member joins this group later."""

app = App("Replay real data through a broker and check what comes back.")


@app.command(example="barnabas demo flights --listen 127.0.0.1:0")
def flights(
    data_dir: Annotated[str, Option(metavar="DIR", help="Where the broker keeps its log.")] = "data",
    listen: Annotated[str, Option(metavar="HOST:PORT", help="Where the broker listens.")] = "127.0.0.1:9092",
    bootstrap: Annotated[
        str | None, Option("-b", metavar="HOST:PORT", help="Use this running broker and start none.")
    ] = None,
    topic: Annotated[str, Option(check=check_topic_name, help="The topic's name.")] = "flights",
    partitions: Annotated[int, Option("-p", minimum=1, help="The number of partitions, if the topic is created.")] = 6,
    limit: Annotated[int | None, Option(minimum=1, help="The number of flights, from the first on.")] = None,
    clean: Annotated[bool, Option(help="Delete the topic first and start clean.")] = False,
    keep: Annotated[bool, Option(help="Leave the broker running afterwards, until Ctrl-C.")] = False,
    json: Json = False,
) -> int:
    """Replay the 336,776 flights that left New York in 2013.

    Starts a broker with its log on disk, writes the flights keyed by carrier with their scheduled departure as record
    time, reads them back with a group of three consumers and checks that nothing is missing, doubled or changed.
    Records of an earlier run are verified and completed.
    """
    from barnabas.cli.demo.flights_demo import FlightsDemo
    from barnabas.cli.framework.child_broker import broker_address

    began = time.perf_counter()
    if bootstrap is not None and keep:
        raise UsageError("--keep: is for the demo's own broker; with --bootstrap there is none")
    with broker_address(bootstrap, listen, Path(data_dir), SETTINGS, quiet=json) as address:
        demo = FlightsDemo(address, topic, partitions, limit, quiet=json)
        report = demo.run(clean=clean)
        report["seconds"] = round(time.perf_counter() - began, 2)
        show(report, json, lambda: _text(report))
        if keep:
            print(f"the broker goes on at {address} until Ctrl-C; try: barnabas consume {topic} -c 3", flush=True)
            while True:
                time.sleep(3600)
    return 0 if report["ok"] else 1


def _text(report: dict[str, Any]) -> str:
    produced, consumed, checks = report["produced"], report["consumed"], report["checks"]
    names = ("partition", "start_offset", "end_offset", "records", "committed_offset", "lag", "consumer")
    rows = [[row[name] for name in names] for row in report["partitions"]]
    verdict = "every flight came back once and unchanged" if report["ok"] else "THE CHECK FAILED: see the lines above"
    lines = [
        "",
        table(("partition", "start", "end", "records read", "committed", "lag", "consumer"), rows),
        "",
        f"produced  {produced['records']:,} records{_rate(produced)}",
        f"consumed  {consumed['records']:,} records{_rate(consumed)} by {consumed['consumers']} consumers in one group",
        f"lag       {report['lag']}",
        f"missing   {checks['missing']:,}",
        f"doubled   {checks['doubled']:,}",
        f"changed   {checks['changed']:,}",
        f"order     {checks['offset_gaps']:,} gaps in the offsets",
        "",
        f"{verdict}; {report['seconds']} s in all",
    ]
    return "\n".join(lines)


def _rate(part: dict[str, Any]) -> str:
    if not part["records"]:
        return ""
    return (
        f", {size_text(part['bytes'])} in {part['seconds']:.2f} s: "
        f"{part['megabytes_per_second']:.1f} MB/s, {part['records_per_second']:,} records/s"
    )
