"""`barnabas elect-leaders`: give partitions back to their preferred leaders."""

from collections.abc import Mapping
from typing import Annotated

from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.outcomes import refused
from barnabas.cli.framework.output import CommandFailed, print_json, table
from barnabas.cli.framework.resources import PARTITIONS, chosen_partitions
from barnabas.client.errors import ItemsFailed
from barnabas.errors import BarnabasError, UsageError
from barnabas.types import TopicPartition

app = App("Make preferred replicas the leaders of their partitions.")


@app.command("", example="barnabas elect-leaders orders\nbarnabas elect-leaders --all-topics")
def elect_leaders(
    topics: Annotated[list[str] | None, Argument(PARTITIONS, "A topic, some of its partitions, or ^PATTERN.")] = None,
    all_topics: Annotated[bool, Option(help="Every partition of the cluster.")] = False,
    unclean: Annotated[
        bool, Option(help="Give partitions without a leader to any replica that lives. May lose records.")
    ] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Make the first replica of each partition its leader, which is how leaders are spread over the brokers.

    Partitions that it leads already are reported as unchanged.
    """
    if bool(topics) == all_topics:
        raise UsageError("elect-leaders: give either TOPIC, as in `barnabas elect-leaders orders`, or --all-topics")
    failed: Mapping[TopicPartition, BarnabasError] = {}
    elected: Mapping[TopicPartition, bool]
    with cluster.admin() as admin:
        partitions = chosen_partitions(admin, topics) if topics else None
        try:
            elected = admin.elect_leaders(partitions, unclean=unclean)
        except ItemsFailed as error:
            elected, failed = error.succeeded, refused(error)
    results = {tp: "elected" if changed else "unchanged" for tp, changed in elected.items()}
    rows = [
        {**tp._asdict(), "result": results.get(tp, "failed"), "error": str(failed[tp]) if tp in failed else None}
        for tp in sorted({*results, *failed})
    ]
    if json:
        print_json(rows)
    elif rows:
        print(table(("topic", "partition", "result"), [tuple(row.values())[:3] for row in rows]))
    else:
        print("every partition is led by its preferred replica; nothing was changed")
    if failed:
        raise CommandFailed("; ".join(f"{tp}: {error}" for tp, error in failed.items()))
