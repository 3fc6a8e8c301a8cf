"""Requests about transactions, one after the other, whose answers are compared between Apache Kafka and this broker.

As `group_script.py`. Generated producer ids are noted by the order of their first appearance, times by whether they are
set. `ask_kafka_transactions.py` plays the script against a broker on the wire and writes
`kafka_transaction_answers.txt`; `test_transaction_golden.py` plays it against the handlers on a virtual clock.

A world has, beside what groups need, `exhaust(transactional_id)`: it uses up the epochs of a producer that was just
initialised, and gives its producer id.
"""

from typing import Any, Protocol

from barnabas.protocol.apis import SERVED, ApiKey
from coordinator import group_script
from coordinator.group_script import struct

MAX_TIMEOUT_MS = 900_000
"""transaction.max.timeout.ms, the default. Beside it the broker must run with
transaction.abort.timed.out.transaction.cleanup.interval.ms=200."""

PRODUCER_IDS = ("producer_id", "ongoing_txn_producer_id")
TIMES = ("transaction_start_time_ms",)
EPOCH_LAST = 32766

Topics = dict[str, list[int]]
Producer = tuple[int, int]


class World(group_script.World, Protocol):
    def exhaust(self, transactional_id: str) -> int: ...


class Player(group_script.Player):
    """Notes producer ids by name."""

    world: World

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._producers: dict[int, str] = {}

    def _field(self, name: str, value: Any) -> str:
        if name in PRODUCER_IDS and value > 0:
            return self._producers.setdefault(value, f"producer{len(self._producers)}")
        if name in TIMES and value > 0:
            return "then"
        return super()._field(name, value)

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
        """Initialise a producer, patiently."""
        for _ in range(50):
            self.a.send(*init(transactional_id, timeout_ms=timeout_ms))
            answer = self.a.receive()
            if answer.error_code == 0:
                self.notes.append((f"{self._story}: init {transactional_id}", self._text(answer)))
                return answer.producer_id, answer.producer_epoch
            self.world.sleep(0.1)
        raise AssertionError(f"{transactional_id} cannot be initialised: {answer}")

    def settle(self) -> None:
        """End markers are written."""
        self.world.sleep(0.5)


# --- requests ---------------------------------------------------------------------------------------------------------


def versions(api: ApiKey, last: int | None = None) -> range:
    return range(SERVED[api].first, (SERVED[api].last if last is None else last) + 1)


def init(
    transactional_id: str | None,
    version: int = 5,
    *,
    timeout_ms: int = 60_000,
    expected: Producer | tuple[()] = (),
) -> group_script.Request:
    fields: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    if expected:
        fields["producer_id"], fields["producer_epoch"] = expected
    return ApiKey.INIT_PRODUCER_ID, version, fields


def _topics(topics: Topics) -> list[Any]:
    return [
        struct("add_partitions_to_txn", "AddPartitionsToTxnTopic", name=name, partitions=partitions)
        for name, partitions in topics.items()
    ]


def add(transactional_id: str, producer: Producer, topics: Topics, version: int = 3) -> group_script.Request:
    return (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": _topics(topics),
        },
    )


def add_many(*wanted: tuple[str, Producer, Topics, bool], version: int = 5) -> group_script.Request:
    transactions = [
        struct(
            "add_partitions_to_txn",
            "AddPartitionsToTxnTransaction",
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=verify_only,
            topics=_topics(topics),
        )
        for transactional_id, producer, topics, verify_only in wanted
    ]
    return ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": transactions}


def add_offsets(transactional_id: str, producer: Producer, group: str, version: int = 4) -> group_script.Request:
    fields: dict[str, Any] = {"transactional_id": transactional_id, "group_id": group}
    return ApiKey.ADD_OFFSETS_TO_TXN, version, fields | {"producer_id": producer[0], "producer_epoch": producer[1]}


def end(transactional_id: str, producer: Producer, commit: bool = True, version: int = 4) -> group_script.Request:
    fields: dict[str, Any] = {"transactional_id": transactional_id, "committed": commit}
    return ApiKey.END_TXN, version, fields | {"producer_id": producer[0], "producer_epoch": producer[1]}


def describe(*transactional_ids: str) -> group_script.Request:
    return ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": list(transactional_ids)}


def listed(version: int = 2, **filters: Any) -> group_script.Request:
    return ApiKey.LIST_TRANSACTIONS, version, filters


# --- the stories ------------------------------------------------------------------------------------------------------


def finding(play: Player) -> None:
    for version in versions(ApiKey.FIND_COORDINATOR)[1:]:
        play.ask(f"v{version}", group_script.find(version, "t", 1))
    play.ask("empty key", group_script.find(4, "", 1))


def initialising(play: Player) -> None:
    for version in versions(ApiKey.INIT_PRODUCER_ID, 5):
        play.ask(f"no transactional id v{version}", init(None, version))
        play.ask(f"new v{version}", init(f"init-{version}", version))
        play.ask(f"again v{version}", init(f"init-{version}", version))
        play.ask(f"empty v{version}", init("", version))
        play.ask(f"too long v{version}", init("init-long", version, timeout_ms=MAX_TIMEOUT_MS + 1))
    play.ask("no timeout", init("init-none", timeout_ms=0))
    play.ask("negative timeout", init("init-none", timeout_ms=-1))
    play.ask("longest timeout", init("init-longest", timeout_ms=MAX_TIMEOUT_MS))
    play.ask("producer without epoch", init("init-5", expected=(7, -1)))
    play.ask("epoch without producer", init("init-5", expected=(-1, 7)))
    play.ask("the epoch of no transactional id", init(None, expected=(7, 7)))
    play.ask("describe", describe("init-5", "init-long", "init-longest", ""))


def going_on_after_an_error(play: Player) -> None:
    one = play.producer("kip360")
    play.ask("what it is", init("kip360", expected=one))
    play.ask("the same again", init("kip360", expected=one))
    two = (one[0], one[1] + 1)
    play.ask("what it is now", init("kip360", expected=two))
    play.ask("older", init("kip360", expected=one))
    play.ask("older v3", init("kip360", 3, expected=one))
    play.ask("later", init("kip360", expected=(one[0], 99)))
    play.ask("another producer", init("kip360", expected=(one[0] + 1_000_000, 0)))
    play.ask("another producer v3", init("kip360", 3, expected=(one[0] + 1_000_000, 0)))
    play.ask("unknown id", init("kip360-new", expected=(5, 5)))
    play.ask("unknown id again", init("kip360-new", expected=(5, 5)))
    three = play.producer("kip360")
    play.ask("older than a new one", init("kip360", expected=(one[0], three[1] - 1)))


def adding(play: Player) -> None:
    one = play.producer("add")
    later = (one[0], one[1] + 1)
    stranger = (one[0] + 1_000_000, one[1])
    for version in versions(ApiKey.ADD_PARTITIONS_TO_TXN, 3):
        play.ask(f"v{version}", add("add", one, {"orders": [version % 4], "other": [0]}, version))
        play.ask(f"unknown id v{version}", add("nope", one, {"orders": [0]}, version))
        play.ask(f"empty id v{version}", add("", one, {"orders": [0]}, version))
        play.ask(f"stranger v{version}", add("add", stranger, {"orders": [0]}, version))
        play.ask(f"later epoch v{version}", add("add", later, {"orders": [0]}, version))
        play.ask(f"earlier epoch v{version}", add("add", (one[0], -1), {"orders": [0]}, version))
        play.ask(f"unknown topic v{version}", add("add", one, {"orders": [0], "ghost": [0]}, version))
        play.ask(f"unknown partition v{version}", add("add", one, {"orders": [0, 9], "other": [1]}, version))
        play.ask(f"internal topic v{version}", add("add", one, {"__consumer_offsets": [0]}, version))
    play.ask("the same again", add("add", one, {"orders": [0, 1]}))
    play.ask("twice in one", add("add", one, {"orders": [2, 2]}))
    play.ask("describe", describe("add"))
    for version in versions(ApiKey.ADD_OFFSETS_TO_TXN):
        play.ask(f"offsets v{version}", add_offsets("add", one, f"group-{version}", version))
        play.ask(f"offsets, unknown id v{version}", add_offsets("nope", one, "group", version))
        play.ask(f"offsets, empty id v{version}", add_offsets("", one, "group", version))
        play.ask(f"offsets, stranger v{version}", add_offsets("add", stranger, "group", version))
        play.ask(f"offsets, later epoch v{version}", add_offsets("add", later, "group", version))
    play.ask("commit", end("add", one))
    play.settle()
    play.ask("describe when committed", describe("add"))


def adding_for_brokers(play: Player) -> None:
    one, two = play.producer("many-1"), play.producer("many-2")
    for version in (4, 5):
        play.ask(
            f"two v{version}",
            add_many(("many-1", one, {"orders": [0]}, False), ("many-2", two, {"orders": [1]}, False), version=version),
        )
        play.ask(
            f"verify v{version}",
            add_many(
                ("many-1", one, {"orders": [0, 1], "other": [0]}, True),
                ("many-2", one, {"orders": [1]}, True),
                ("nope", one, {"orders": [1]}, True),
                ("", one, {"orders": [1]}, True),
                version=version,
            ),
        )
    later = (one[0], one[1] + 1)
    play.ask("verify a later epoch", add_many(("many-1", later, {"orders": [0]}, True)))
    play.ask("add a later epoch", add_many(("many-1", later, {"orders": [0]}, False)))
    play.ask("verify an unknown topic", add_many(("many-1", one, {"orders": [0], "ghost": [0]}, True)))
    play.ask("internal topic", add_many(("many-1", one, {"__transaction_state": [0]}, False)))
    play.ask("commit", end("many-1", one, version=5))
    play.settle()
    play.ask("verify after the end", add_many(("many-1", later, {"orders": [0]}, True)))
    play.ask("abort", end("many-2", two, False, version=5))
    play.settle()
    play.ask("describe", describe("many-1", "many-2"))


def ending(play: Player) -> None:
    for version in versions(ApiKey.END_TXN, 4):
        name = f"end-{version}"
        one = play.producer(name)
        play.ask(f"commit nothing v{version}", end(name, one, True, version))
        play.ask(f"abort nothing v{version}", end(name, one, False, version))
        play.ask(f"stranger v{version}", end(name, (one[0] + 1_000_000, one[1]), True, version))
        play.ask(f"later epoch v{version}", end(name, (one[0], one[1] + 1), True, version))
        play.ask(f"unknown id v{version}", end("nope", one, True, version))
        play.ask(f"empty id v{version}", end("", one, True, version))
        play.ask(f"begin v{version}", add(name, one, {"orders": [0]}))
        play.ask(f"commit v{version}", end(name, one, True, version))
        play.settle()
        play.ask(f"commit again v{version}", end(name, one, True, version))
        play.ask(f"abort instead v{version}", end(name, one, False, version))
        play.ask(f"begin another v{version}", add(name, one, {"orders": [0], "other": [1]}))
        play.ask(f"abort v{version}", end(name, one, False, version))
        play.settle()
        play.ask(f"abort again v{version}", end(name, one, False, version))
        play.ask(f"commit instead v{version}", end(name, one, True, version))
        two = play.producer(name)
        play.ask(f"the zombie begins v{version}", add(name, one, {"orders": [0]}))
        play.ask(f"begin a third v{version}", add(name, two, {"orders": [0]}))
        play.ask(f"the zombie commits v{version}", end(name, one, True, version))
        play.ask(f"commit the third v{version}", end(name, two, True, version))
        play.settle()
        play.ask(f"describe v{version}", describe(name))


def ending_with_new_epochs(play: Player) -> None:
    one = play.producer("tv2")
    play.ask("commit nothing", end("tv2", one, True, 5))
    play.ask("a retry of nothing", end("tv2", (one[0], one[1] - 1), False, 5))
    begun = play.ask("abort nothing", end("tv2", one, False, 5))
    play.settle()
    play.ask("abort nothing again, late", end("tv2", one, False, 5))
    play.ask("commit it, late", end("tv2", one, True, 5))
    play.ask("describe", describe("tv2"))
    two = (begun.producer_id, begun.producer_epoch)
    play.ask("begin with the old epoch", add_many(("tv2", one, {"orders": [0]}, False)))
    play.ask("begin", add_many(("tv2", two, {"orders": [0]}, False)))
    play.ask("the late abort", end("tv2", one, False, 5))
    committed = play.ask("commit", end("tv2", two, True, 5))
    play.settle()
    play.ask("commit again, late", end("tv2", two, True, 5))
    play.ask("abort it, late", end("tv2", two, False, 5))
    three = (committed.producer_id, committed.producer_epoch)
    play.ask("commit nothing after a commit", end("tv2", three, True, 5))
    play.ask("far ahead", end("tv2", (three[0], three[1] + 5), True, 5))
    play.ask("stranger", end("tv2", (three[0] + 1_000_000, three[1]), True, 5))
    aborted = play.ask("abort nothing after a commit", end("tv2", three, False, 5))
    play.settle()
    four = (aborted.producer_id, aborted.producer_epoch)
    play.ask("commit nothing after an abort", end("tv2", four, True, 5))
    play.ask("unknown id", end("nope", four, True, 5))
    play.ask("empty id", end("", four, True, 5))
    play.ask("begin the old way", add("tv2", four, {"orders": [1]}))
    play.ask("commit the old way", end("tv2", four, True, 4))
    play.settle()
    play.ask("and again the new way", end("tv2", four, True, 5))
    play.ask("abort the new way", end("tv2", four, False, 5))
    play.settle()
    play.ask("describe at the end", describe("tv2"))


def restarting(play: Player) -> None:
    one = play.producer("again")
    play.ask("begin", add("again", one, {"orders": [0]}))
    play.ask("a second producer", init("again"))
    play.settle()
    play.ask("it comes again", init("again"))
    play.ask("the zombie adds", add("again", one, {"orders": [0]}))
    play.ask("the zombie adds v1", add("again", one, {"orders": [0]}, 1))
    play.ask("the zombie commits", end("again", one))
    play.ask("the zombie commits v1", end("again", one, True, 1))
    play.ask("the zombie commits v5", end("again", one, True, 5))
    play.ask("the zombie goes on", init("again", expected=one))
    play.ask("describe", describe("again"))
    two = play.producer("again")
    play.ask("begin again", add("again", two, {"orders": [0]}))
    play.ask("go on in the middle", init("again", expected=two))
    play.settle()
    play.ask("go on", init("again", expected=two))
    play.ask("go on once more", init("again", expected=two))
    three = play.producer("again")
    play.ask("begin a third", add("again", three, {"orders": [0]}))
    play.ask("another in the middle", init("again", expected=(three[0] + 1_000_000, 0)))
    play.ask("a later epoch in the middle", init("again", expected=(three[0], three[1] + 9)))
    play.settle()


def timing_out(play: Player) -> None:
    one = play.producer("slow", 1_000)
    play.ask("begin", add("slow", one, {"orders": [0]}))
    play.world.sleep(2)
    play.ask("describe", describe("slow"))
    play.ask("commit", end("slow", one))
    play.ask("commit v5", end("slow", one, True, 5))
    play.ask("abort v5", end("slow", one, False, 5))
    play.ask("add", add("slow", one, {"orders": [0]}))
    play.ask("go on", init("slow", expected=one))
    play.ask("go on again", init("slow", expected=one))


def running_out_of_epochs(play: Player) -> None:
    one = (play.world.exhaust("last"), EPOCH_LAST)
    play.ask("the next producer", init("last"))
    one = (play.world.exhaust("last-goes-on"), EPOCH_LAST)
    play.ask("goes on", init("last-goes-on", expected=one))
    play.ask("goes on again", init("last-goes-on", expected=one))
    one = (play.world.exhaust("last-tv1"), EPOCH_LAST)
    play.ask("begin, the old way", add("last-tv1", one, {"orders": [0]}))
    play.ask("commit, the old way", end("last-tv1", one))
    play.settle()
    play.ask("begin, the old way again", add("last-tv1", one, {"orders": [0]}))
    play.ask("fence", init("last-tv1"))
    play.settle()
    play.ask("describe", describe("last-tv1"))
    play.producer("last-tv1")
    one = (play.world.exhaust("last-tv2"), EPOCH_LAST)
    play.ask("begin, the new way", add_many(("last-tv2", one, {"orders": [0]}, False)))
    play.ask("commit, the new way", end("last-tv2", one, True, 5))
    play.settle()
    play.ask("commit again, late", end("last-tv2", one, True, 5))
    play.ask("abort it, late", end("last-tv2", one, False, 5))
    play.ask("describe the new producer", describe("last-tv2"))
    play.producer("last-tv2")


def listing(play: Player) -> None:
    one = play.producer("list-ongoing")
    play.ask("begin", add("list-ongoing", one, {"orders": [0]}))
    play.producer("list-empty")
    play.world.sleep(0.3)
    for version in versions(ApiKey.LIST_TRANSACTIONS):
        play.ask(f"all v{version}", listed(version))
    for states in (["Ongoing"], ["Empty", "Ongoing"], ["ongoing"], ["Nonsense"], ["Nonsense", "Ongoing", "Dead"]):
        play.ask(f"states {states}", listed(0, state_filters=states))
    play.ask("producer", listed(0, producer_id_filters=[one[0]]))
    play.ask("producers", listed(0, producer_id_filters=[one[0], 987_654_321]))
    play.ask("both", listed(0, producer_id_filters=[one[0]], state_filters=["Empty"]))
    for duration_ms in (-5, 0, 100, 3_600_000):
        play.ask(f"longer than {duration_ms}", listed(1, duration_filter=duration_ms, state_filters=["Ongoing"]))
        play.ask(f"empty longer than {duration_ms}", listed(1, duration_filter=duration_ms, state_filters=["Empty"]))
    for pattern in ("list-.*", "list", "list-(ongoing|x)", "", "lis[t]-e.+y", "(", "[a", "*", "LIST-.*", r"\w+-\w{5}"):
        play.ask(f"pattern {pattern}", listed(2, transactional_id_pattern=pattern))
    play.ask("no pattern", listed(2, transactional_id_pattern=None, state_filters=["Ongoing"]))
    play.ask("describe", describe("list-ongoing", "list-empty", "nope", "list-empty"))
    play.ask("describe none", describe())


STORIES = (
    finding,
    initialising,
    going_on_after_an_error,
    adding,
    adding_for_brokers,
    ending,
    ending_with_new_epochs,
    restarting,
    timing_out,
    running_out_of_epochs,
    listing,
)
