"""`barnabas get-offsets`: shows the offsets of partitions, now or at a time."""

from typing import Annotated, Final

from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.output import known, now_ms, show, table, time_text
from barnabas.cli.framework.resources import PARTITIONS, check_partitions, chosen_partitions, chosen_topics, watermarks
from barnabas.cli.records.positions import parse_time
from barnabas.types import TopicPartition

app = App("Show where partitions begin and end, or stood at a time.")

NAMED: Final = {"earliest": "earliest", "latest": "latest", "max-timestamp": "max_timestamp"}


@app.command("", example="barnabas get-offsets orders\nbarnabas get-offsets orders:0 --time 2013-01-01T05:15:00Z")
def get_offsets(
    topics: Annotated[
        list[str] | None,
        Argument(
            PARTITIONS, "A topic, some of its partitions, or ^PATTERN; all topics if left out.", check=check_partitions
        ),
    ] = None,
    time: Annotated[
        str | None, Option(metavar="TIME", help="earliest, latest, max-timestamp (the newest record), or a time.")
    ] = None,
    read_committed: Annotated[
        bool, Option(help="The end is the offset at which the first open transaction begins.")
    ] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Show the first offset of partitions and the one that the next record gets; with --time a single offset.

    For a time that is the offset of the first record from then on, with that record's timestamp; there is none (JSON:
    null) where all records are older. TIME is milliseconds, 2013-01-01T05:15:00Z, 2013-01-01, now, or -1h.
    """
    when = NAMED.get(time) if time in NAMED else None if time is None else parse_time(time, now_ms())
    isolation = "read_committed" if read_committed else "read_uncommitted"
    with cluster.admin() as admin:
        if topics:
            partitions = chosen_partitions(admin, topics)
        else:
            partitions = [
                TopicPartition(view.name, number) for view in chosen_topics(admin, ()) for number in view.partitions
            ]
        if when is None:
            marks = watermarks(admin, partitions, isolation=isolation)
            rows = [{**tp._asdict(), "start_offset": marks[tp][0], "end_offset": marks[tp][1]} for tp in partitions]
            headers, cells = ("topic", "partition", "start", "end"), [tuple(row.values()) for row in rows]
        else:
            found = admin.list_offsets(dict.fromkeys(partitions, when), isolation=isolation)
            rows = [
                {**tp._asdict(), "offset": known(found[tp].offset), "timestamp": known(found[tp].timestamp)}
                for tp in partitions
            ]
            headers = ("topic", "partition", "offset", "timestamp")
            cells = [(*tp, known(found[tp].offset), time_text(found[tp].timestamp)) for tp in partitions]
    show(rows, json, lambda: table(headers, cells) if rows else "no topics")
