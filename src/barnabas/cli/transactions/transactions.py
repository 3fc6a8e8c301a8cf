"""`barnabas transactions`."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from barnabas import Admin
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.output import CommandFailed, known, now_ms, print_json, show, table, time_text
from barnabas.cli.framework.resources import broker_ids, check_topic_name
from barnabas.cli.transactions.hanging_transactions import HangingTransaction, find_hanging_transactions
from barnabas.client.admin.transactions import ProducerOnPartition, TransactionDescription
from barnabas.errors import UsageError
from barnabas.printable import printable
from barnabas.types import TopicPartition

app = App("List and describe transactions; find and abort those that hang.")

ENDED: Final = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""States without a transaction, though the start of the last one may still be known."""

Topic = Annotated[str, Option("--topic", "-t", metavar="TOPIC", check=check_topic_name, help="The topic.")]
Partition = Annotated[int, Option("--partition", "-p", minimum=0, help="The partition.")]
BrokerId = Annotated[
    int | None, Option("--broker-id", minimum=0, help="Ask the replica on this broker instead of the leader.")
]


@app.command("list", example="barnabas transactions list --state Ongoing")
def list_transactions(
    state: Annotated[
        list[str] | None, Option(help="Only ids in this state, such as Ongoing or Empty; repeat for more.")
    ] = None,
    producer_id: Annotated[list[int] | None, Option(help="Only ids of this producer; repeat for more.")] = None,
    duration_filter: Annotated[
        int,
        Option(metavar="MS", help="Only ids whose transaction has run for longer than this number of milliseconds."),
    ] = -1,
    transactional_id_pattern: Annotated[
        str | None, Option(metavar="REGEX", help="Only ids that this regular expression matches as a whole.")
    ] = None,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """List the transactional ids that the coordinators know, with their states."""
    with cluster.admin() as admin:
        found = admin.list_transactions(
            states=state or (),
            producer_ids=producer_id or (),
            running_longer_than_ms=duration_filter,
            pattern=transactional_id_pattern,
        )
    if json:
        print_json([listing._asdict() for listing in found])
    elif found:
        rows = [(t.transactional_id, t.coordinator, t.producer_id, t.state) for t in found]
        print(table(("transactional id", "coordinator", "producer id", "state"), rows))
    else:
        print("no transactional ids" + (" of this kind" if state or producer_id or transactional_id_pattern else ""))


@app.command(example="barnabas transactions describe billing-1")
def describe(
    transactional_id: Annotated[str, Argument("TRANSACTIONAL-ID", "The producer's transactional.id.")],
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Show a transactional id: its state, its producer, and the partitions of its open transaction."""
    with cluster.admin() as admin:
        report = _report(admin.describe_transactions(transactional_id)[transactional_id])
    show(report, json, lambda: _text(report))


def _report(found: TransactionDescription) -> dict[str, Any]:
    started = known(found.start_time_ms)
    runs = started is not None and found.state not in ENDED
    return {
        "transactional_id": found.transactional_id,
        "coordinator": found.coordinator,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_time": started,
        "duration_ms": max(now_ms() - found.start_time_ms, 0) if runs else None,
        "partitions": [tp._asdict() for tp in found.partitions],
    }


def _text(report: Mapping[str, Any]) -> str:
    parts = (
        f"transactional id {report['transactional_id']}",
        f"state {report['state']}",
        f"coordinator {report['coordinator']}",
        f"producer {report['producer_id']}/{report['producer_epoch']}",
        f"timeout {report['timeout_ms']} ms",
    )
    lines = [printable(", ".join(parts))]
    if report["duration_ms"] is not None:
        lines.append(f"begun {time_text(report['start_time'])}, {report['duration_ms']} ms ago")
    if report["partitions"]:
        lines += ["", table(("topic", "partition"), [tuple(entry.values()) for entry in report["partitions"]])]
    return "\n".join(lines)


@app.command("describe-producers", example="barnabas transactions describe-producers --topic orders --partition 0")
def describe_producers(
    topic: Topic,
    partition: Partition,
    broker_id: BrokerId = None,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Show the producers that a partition remembers, and where their open transactions begin."""
    tp = TopicPartition(topic, partition)
    with cluster.admin() as admin:
        producers = sorted(admin.describe_producers([tp], broker_id=broker_id)[tp])
    if json:
        print_json([_producer(producer) for producer in producers])
    elif producers:
        names = ("producer", "epoch", "last sequence", "last written", "coordinator epoch", "transaction from")
        rows = [[*(_producer(p) | {"last_timestamp": time_text(p.last_timestamp)}).values()] for p in producers]
        print(table(names, rows))
    else:
        print(f"no producers are known to {tp}")


def _producer(producer: ProducerOnPartition) -> dict[str, Any]:
    return {name: known(value) for name, value in producer._asdict().items()}


@app.command("find-hanging", example="barnabas transactions find-hanging --topic orders")
def find_hanging(
    broker_id: BrokerId = None,
    topic: Annotated[
        list[str] | None,
        Option("-t", metavar="TOPIC", check=check_topic_name, help="Only in this topic; repeat for more."),
    ] = None,
    partition: Annotated[int | None, Option("-p", minimum=0, help="Only in this partition of the one topic.")] = None,
    max_transaction_timeout: Annotated[
        float,
        Option(
            metavar="MINUTES",
            minimum=0,
            help="Skip transactions with more recent records; the brokers' transaction.max.timeout.ms.",
        ),
    ] = 15,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Find transactions that no coordinator will ever end. Consumers with read_committed stop before them.

    Without a topic all topics are searched. `barnabas transactions abort` ends the transactions that are found.
    """
    if partition is not None and len(topic or ()) != 1:
        raise UsageError("find-hanging: --partition needs the one --topic that it belongs to")
    at_ms = now_ms()
    with cluster.admin() as admin:
        if broker_id is not None:
            broker_ids(admin, [broker_id])
        partitions = _scope(admin, topic, partition, broker_id)
        found = find_hanging_transactions(
            admin, partitions, now_ms=at_ms, max_timeout_ms=int(max_transaction_timeout * 60_000), broker_id=broker_id
        )
    if json:
        print_json([_hanging(hanging, at_ms) for hanging in found])
    elif not found:
        print(f"no transaction hangs in {len(partitions)} partitions")
    else:
        names = ("topic", "partition", "producer", "epoch", "from offset", "last written", "transactional id")
        rows = [
            (*h.partition, h.producer.producer_id, h.producer.producer_epoch,
             h.producer.current_transaction_start_offset, time_text(h.producer.last_timestamp), h.transactional_id)
            for h in found
        ]  # fmt: skip
        print(table(names, rows))
        print("\n`barnabas transactions abort -t TOPIC -p PARTITION --start-offset OFFSET` ends one")


def _scope(
    admin: Admin, topics: Iterable[str] | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    """Returns the partitions to search; of a broker those that it has a replica of. Raises KafkaError."""
    views = admin.list_topics(internal=True) if topics is None else list(admin.describe_topics(topics).values())
    found = [
        TopicPartition(view.name, index)
        for view in views
        for index, replica in view.partitions.items()
        if broker_id is None or broker_id in replica.replicas
    ]
    if partition is None:
        return found
    chosen = [tp for tp in found if tp.partition == partition]
    if not chosen:
        raise CommandFailed(f"topic {views[0].name!r} has partitions 0 to {len(found) - 1}, not {partition}")
    return chosen


def _hanging(hanging: HangingTransaction, now_ms: int) -> dict[str, Any]:
    producer = hanging.producer
    return {
        **hanging.partition._asdict(),
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": known(producer.coordinator_epoch),
        "start_offset": producer.current_transaction_start_offset,
        "last_timestamp": producer.last_timestamp,
        "duration_ms": now_ms - producer.last_timestamp,
        "transactional_id": hanging.transactional_id,
    }


@app.command(example="barnabas transactions abort --topic orders --partition 0 --start-offset 1234")
def abort(
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int | None, Option(minimum=0, help="Where the transaction begins in the partition.")
    ] = None,
    producer_id: Annotated[
        int | None, Option(minimum=0, help="The producer's id, instead of --start-offset; needs both epochs.")
    ] = None,
    producer_epoch: Annotated[int | None, Option("--producer-epoch", "--epoch", help="The producer's epoch.")] = None,
    coordinator_epoch: Annotated[
        int | None, Option(help="The epoch of the coordinator's last marker, -1 for none.")
    ] = None,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Abort a transaction that hangs in a partition, by its offset (`find-hanging` shows it) or by its producer.

    Never for a transaction that its producer or its coordinator can still end.
    """
    given = {"producer_id": producer_id, "producer_epoch": producer_epoch, "coordinator_epoch": coordinator_epoch}
    spec = {name: value for name, value in given.items() if value is not None}
    if len(spec) != (3 if start_offset is None else 0):
        raise UsageError(
            "abort: give either --start-offset, or all of --producer-id, --producer-epoch and --coordinator-epoch"
        )
    tp = TopicPartition(topic, partition)
    with cluster.admin() as admin:
        if start_offset is not None:
            producer = _producer_at(admin, tp, start_offset)
            spec = {name: getattr(producer, name) for name in given}
        admin.abort_transaction(tp, **spec)
    if json:
        print_json({"topic": topic, "partition": partition, "start_offset": start_offset, **spec})
    else:
        print(f"aborted the transaction of producer {spec['producer_id']}/{spec['producer_epoch']} in {tp}")


def _producer_at(admin: Admin, partition: TopicPartition, start_offset: int) -> ProducerOnPartition:
    producers = admin.describe_producers([partition])[partition]
    for producer in producers:
        if producer.current_transaction_start_offset == start_offset:
            return producer
    open_at = sorted(offset for p in producers if (offset := p.current_transaction_start_offset) >= 0)
    shown = f"open ones begin at {', '.join(map(str, open_at))}" if open_at else "none is open there"
    raise CommandFailed(f"no transaction begins at offset {start_offset} of {partition}; {shown}")
