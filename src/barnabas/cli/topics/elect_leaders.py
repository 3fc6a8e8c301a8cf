"""`barnabas elect-leaders`: gives partitions back to their preferred leaders."""

from typing import Annotated

from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.outcomes import failures_text, outcomes
from barnabas.cli.framework.output import CommandFailed, show, table
from barnabas.cli.framework.resources import PARTITIONS, check_partitions, chosen_partitions
from barnabas.errors import UsageError

app = App("Make preferred replicas the leaders of their partitions.")


@app.command("", example="barnabas elect-leaders orders\nbarnabas elect-leaders --all-topics")
def elect_leaders(
    topics: Annotated[
        list[str] | None, Argument(PARTITIONS, "A topic, some of its partitions, or ^PATTERN.", check=check_partitions)
    ] = None,
    all_topics: Annotated[bool, Option(help="Every partition of the cluster.")] = False,
    unclean: Annotated[
        bool, Option(help="Elect any live replica for partitions without a leader. May lose records.")
    ] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Make the first replica of each partition its leader, which spreads the leaders over the brokers.

    Partitions that it leads already are reported as unchanged.
    """
    if bool(topics) == all_topics:
        raise UsageError("give either TOPIC, such as orders, or --all-topics")
    with cluster.admin() as admin:
        partitions = chosen_partitions(admin, topics) if topics else None
        elected, failed = outcomes(lambda: admin.elect_leaders(partitions, unclean=unclean))
    results = dict.fromkeys(failed, "failed") | {tp: "elected" if elected[tp] else "unchanged" for tp in elected}
    rows = [{**tp._asdict(), "result": results[tp], "error": failed.get(tp)} for tp in sorted(results)]
    cells = [tuple(row.values())[:3] for row in rows]
    unchanged = "every partition is led by its preferred replica; nothing was changed"
    show(rows, json, lambda: table(("topic", "partition", "result"), cells) if cells else unchanged)
    if failed:
        raise CommandFailed(failures_text(failed))
