"""Every public call of the clients refuses what it cannot take, by name and at once: never a broker's refusal, an
error of the inside, or a wait."""

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.admin.admin_client import KafkaAdminClient
from barnabas.client.admin.configs import ConfigChange
from barnabas.client.admin.groups import MemberToRemove
from barnabas.client.admin.topics import NewTopic
from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.client.producer.transactions.transaction_manager import PreparedTransaction
from barnabas.errors import UsageError
from barnabas.testing import Broker

TOPIC = "bad-arguments"
PLACE = (TOPIC, 0)

TEXT = [5, b"orders", ["orders"], "half \ud800", "a" * 2**15, ""]
TEXTS = [5, b"orders", [5], [b"orders"], ["half \ud800"], ["a" * 2**15], [""], [None]]
FLAG = ["no", 1, []]
NUMBER = ["1", 1.5, True, b"1", -5, 2**80]
SECONDS = ["1", -1, float("nan"), True, [1], b"1"]
PAIR = [
    "orders",
    5,
    (TOPIC,),
    (TOPIC, "0"),
    (TOPIC, -1),
    (5, 0),
    (TOPIC, 0.5),
    (b"orders", 0),
    (TOPIC, None),
    ("", 0),
    ("a" * 250, 0),
]
PAIRS = [5, "orders", PLACE, barnabas.TopicPartition(*PLACE), {"a": 1}, *([pair] for pair in PAIR)]
CALLBACK = [5, "print"]
OFFSET = ["1", -1, 1.5, None, True, (5, "x"), OffsetAndMetadata(-1), OffsetAndMetadata(1, 5)]  # type: ignore[arg-type]
TIME = ["1", -10, 1.5, True, 2**80]


def at_places(values: list[Any]) -> list[Any]:
    """For a mapping of partitions to such."""
    return [5, "orders", [PLACE], {"orders": 1}, {5: 1}, *({PLACE: value} for value in values)]


ADMIN: dict[str, tuple[Any, list[Any]]] = {
    "at": ({PLACE: "latest"}, at_places(["soonest", *TIME, None])),
    "before": ({PLACE: 1}, at_places([*NUMBER, None])),
    "broker_id": (1, NUMBER),
    "broker_ids": ([1], [5, "1", ["1"], [-1], [None]]),
    "changes": (
        {("topic", TOPIC): {"retention.ms": "1"}},
        [
            *(5, [("topic", TOPIC)], {"topic": {}}, {("tropic", TOPIC): {}}, {("broker", "one"): {}}),
            *({("topic", TOPIC): change} for change in ({"retention.ms": 1}, {5: "1"}, 5, "x", ["retention.ms"])),
            {("topic", TOPIC): [ConfigChange("retention.ms", "1", "add")]},  # type: ignore[arg-type]
        ],
    ),
    "committed": (True, FLAG),
    "coordinator_epoch": (1, NUMBER),
    "counts": ({TOPIC: 3}, [5, [TOPIC], {5: 3}, {TOPIC: "3"}, {TOPIC: 0}, {TOPIC: None}]),
    "documentation": (True, FLAG),
    "directories": (
        {(TOPIC, 0, 1): "/data"},
        [
            5,
            "/data",
            [PLACE],
            {PLACE: "/data"},
            {(TOPIC, 0, -1): "/data"},
            {(TOPIC, -1, 1): "/data"},
            {(TOPIC, 0, 1): 5},
        ],
    ),
    "group_id": ("g", TEXT[:-1]),
    "group_ids": (["g"], [5, b"g", [5], [None]]),
    "include_fenced": (True, FLAG),
    "internal": (True, FLAG),
    "isolation": ("read_committed", ["committed", 5, ["read_committed"]]),
    "keys": (["retention.ms"], TEXTS),
    "kinds": (["topic"], TEXTS),
    "limit": (5, NUMBER),
    "members": ([MemberToRemove("m")], [5, "m", ["m"], [MemberToRemove()], [("m", None)], [MemberToRemove(5)]]),  # type: ignore[arg-type]
    "names": ([TOPIC], TEXTS),
    "offsets": ({PLACE: 1}, at_places(OFFSET)),
    "partition": (PLACE, PAIR),
    "partitions": ([PLACE], PAIRS),
    "pattern": ("a.*", TEXT),
    "producer_epoch": (1, NUMBER),
    "producer_id": (1, NUMBER),
    "producer_ids": ([1], [5, "1", ["1"], [-1]]),
    "reason": ("why", TEXT),
    "replicas": ({PLACE: [1]}, at_places([5, "1", ["1"], [-1], [None]])),
    "require_stable": (True, FLAG),
    "resources": (
        [("topic", TOPIC)],
        [5, "topic", ["topic"], [("tropic", TOPIC)], [("topic", None)], [("broker", "x")]],
    ),
    "running_longer_than_ms": (5, NUMBER),
    "states": (["Empty"], TEXTS),
    "timeout": (5.0, SECONDS),
    "topics": (
        [TOPIC],
        [
            *TEXTS,
            *(NewTopic(5), NewTopic("a", partitions="3"), NewTopic("a", replication_factor=-2)),  # type: ignore[arg-type]
            *(NewTopic("a", configs={"retention.ms": 5}), NewTopic("a", configs=["retention.ms"])),  # type: ignore[dict-item, arg-type]
            *(NewTopic("a", assignments=[[1]]), NewTopic("a", assignments={0: 1})),  # type: ignore[arg-type, dict-item]
        ],
    ),
    "transactional_id": ("t", TEXT),
    "transactional_ids": (["t"], TEXTS),
    "types": (["classic"], TEXTS),
    "unclean": (True, FLAG),
    "updates": ({"a.version": 1}, [5, "a", ["a"], {5: 1}, {"a": "1"}, {"a": -1}, {"a": True}, {"a": (1, True)}]),
    "validate_only": (True, FLAG),
}
"""By parameter: what would do, and what would not."""

CONSUMER: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    "arrow": {},
    "assign": {"partitions": ([PLACE], [None, *PAIRS])},
    "assignment": {},
    "batches": {},
    "beginning_offsets": {"partitions": ([PLACE], [None, *PAIRS]), "timeout": (5, SECONDS)},
    "close": {"timeout": (5, SECONDS)},
    "commit": {"offsets": ({PLACE: 1}, at_places(OFFSET)), "timeout": (5, SECONDS)},
    "commit_async": {"offsets": ({PLACE: 1}, at_places(OFFSET)), "callback": (print, CALLBACK)},
    "committed": {"partitions": ([PLACE], [None, *PAIRS]), "timeout": (5, SECONDS)},
    "end_offsets": {"partitions": ([PLACE], [None, *PAIRS]), "timeout": (5, SECONDS)},
    "enforce_rebalance": {"reason": ("why", TEXT)},
    "group_metadata": {},
    "health": {},
    "metrics": {},
    "next_offsets": {},
    "offsets_for_times": {"timestamps": ({PLACE: 1}, at_places([*TIME, None])), "timeout": (5, SECONDS)},
    "partitions_for": {"topic": (TOPIC, [None, *TEXT]), "timeout": (5, SECONDS)},
    "pause": {"partitions": ([PLACE], [None, *PAIRS])},
    "paused": {},
    "poll": {"timeout": (5, SECONDS), "max_records": (5, [*NUMBER, 0])},
    "poll_batch": {"timeout": (5, SECONDS)},
    "position": {"partition": (PLACE, [None, *PAIR]), "timeout": (5, SECONDS)},
    "process": {
        "handler": (print, [None, *CALLBACK]),
        "workers": (1, [None, *NUMBER, 0]),
        "ordered_by": ("key", [None, "topic", 5, ["key"]]),
        "on_error": (print, CALLBACK),
        "limit": (5, [None, *NUMBER, 0]),
        "finish_timeout": (5, [None, *SECONDS]),
    },
    "resume": {"partitions": ([PLACE], [None, *PAIRS])},
    "seek": {"partition": (PLACE, [None, *PAIR]), "offset": (1, [None, *NUMBER]), "leader_epoch": (1, [None, *NUMBER])},
    "seek_to_beginning": {"partitions": ([PLACE], [None, *PAIRS])},
    "seek_to_end": {"partitions": ([PLACE], [None, *PAIRS])},
    "subscribe": {
        "topics": ([TOPIC], [None, *TEXTS[:1], *TEXTS[1:], []]),
        "on_assigned": (print, CALLBACK),
        "on_revoked": (print, CALLBACK),
        "on_lost": (print, CALLBACK),
    },
    "subscription": {},
    "unsubscribe": {},
    "until_end": {"timeout": (5, SECONDS)},
    "wakeup": {},
}
PARTITION = ["0", 1.5, b"0", -1, 2**31, 2**80]
HEADERS = [5, "a", [5], [("a",)], [(5, b"b")], {"a": 5}, {5: b"a"}]
PREPARED = [5, "1:2", ("1", "2"), (1,)]
PRODUCER: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    "abort_transaction": {"timeout": (5, SECONDS)},
    "begin_transaction": {},
    "close": {"timeout": (5, SECONDS)},
    "commit_transaction": {"timeout": (5, SECONDS)},
    "complete_transaction": {"prepared": (PreparedTransaction(1, 2), [None, *PREPARED]), "timeout": (5, SECONDS)},
    "flush": {"timeout": (5, SECONDS)},
    "init_transactions": {
        "transactional_id": ("t", TEXT),
        "keep_prepared": (False, [None, *FLAG]),
        "continuing": (PreparedTransaction(1, 2), PREPARED),
        "timeout": (5, SECONDS),
    },
    "metrics": {},
    "partitions_for": {"topic": (TOPIC, [None, *TEXT]), "timeout": (5, SECONDS)},
    "prepare_transaction": {"timeout": (5, SECONDS)},
    "purge": {"in_flight": (True, [None, *FLAG])},
    "release_transaction": {"timeout": (5, SECONDS)},
    "send": {
        "topic": (TOPIC, [None, *TEXT]),
        "value": (b"v", [5, "text", 1.5, ["a"], {"a": 1}]),
        "key": (b"k", [5, "text", 1.5, ["a"]]),
        "partition": (0, PARTITION),
        "timestamp": (5, ["1", 1.5, -1, b"1", 2**63]),
        "headers": ({"a": b"b"}, HEADERS),
        "on_delivery": (print, CALLBACK),
    },
    "send_many": {
        "topic": (TOPIC, [None, *TEXT]),
        "values": ([b"v"], [None, 5, b"v", "text", {"a": 1}, [5], ["text"]]),
        "keys": ([b"k"], [5, b"v", "text", {"a": 1}, [5], ["text"], []]),
        "headers": ([{}], [5, "a", [5], [[5]], {"a": 5}, {5: b"a"}, []]),
        "timestamps": ([5], [5, "a", ["1"], [1.5], []]),
        "partition": (0, PARTITION),
    },
    "send_offsets_to_transaction": {
        "offsets": ({PLACE: 1}, [None, *at_places(OFFSET)]),
        "group_metadata": (GroupMetadata("g"), [None, 5, b"g", {"group": "g"}, ""]),
        "timeout": (5, SECONDS),
    },
    "send_table": {
        "topic": (TOPIC, [None, *TEXT]),
        "table": (None, [5, {"value": [b"v"]}, [b"v"]]),
        "partition": (0, PARTITION),
    },
    "transaction": {},
}


def of_admin() -> dict[str, dict[str, tuple[Any, list[Any]]]]:
    calls = {}
    for name, call in inspect.getmembers(KafkaAdminClient, inspect.isfunction):
        if not name.startswith("_") and name != "topics_with_records":
            calls[name] = {
                parameter.name: (
                    ADMIN[parameter.name][0],
                    ADMIN[parameter.name][1] + [None] * (parameter.default is not None),
                )
                for parameter in list(inspect.signature(call).parameters.values())[1:]
            }
    return calls


CALLS = {"Admin": of_admin(), "Consumer": CONSUMER, "Producer": PRODUCER}
ALL = [(client, name) for client, calls in CALLS.items() for name in calls]


@pytest.mark.parametrize("client", CALLS)
@pytest.mark.parametrize("package", [barnabas, barnabas.aio], ids=["sync", "aio"])
def test_no_call_and_no_parameter_is_left_out(package: Any, client: str) -> None:
    for name, call in inspect.getmembers(getattr(package, client), inspect.isfunction):
        if name.startswith("_") or (client, name) == ("Admin", "close"):
            continue
        of_call = set(inspect.signature(call).parameters) - {"self"}
        assert of_call - {"headers"} <= set(CALLS[client][name]), name


SETTINGS: dict[str, dict[str, Any]] = {
    "Admin": {"default_api_timeout_ms": 60_000},
    "Consumer": {"group_id": "bad-arguments", "default_api_timeout_ms": 60_000},
    "Producer": {
        "transactional_id": "bad-arguments",
        "max_block_ms": 60_000,
    },
}


class OnALoop:
    """An asyncio client with the synchronous one's manners."""

    def __init__(self, kind: Any, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = kind(**settings)

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        async def work() -> Any:
            result = getattr(self._client, name)(**arguments)
            return await result if inspect.isawaitable(result) else result

        return self._runner.run(work())

    def close(self) -> None:
        self.call("close", {})
        self._runner.close()


class Direct:
    def __init__(self, kind: Any, **settings: Any) -> None:
        self._client = kind(**settings)

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        return getattr(self._client, name)(**arguments)

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def servers(session_broker: Broker) -> str:
    with barnabas.Admin(bootstrap_servers=session_broker.bootstrap_servers) as admin:
        admin.create_topics([TOPIC])
    return session_broker.bootstrap_servers


@pytest.fixture(scope="module", params=[Direct, OnALoop], ids=["sync", "aio"])
def made(request: pytest.FixtureRequest, servers: str) -> Iterator[Callable[[str], Any]]:
    """A client of that name, the same for all tests."""
    package = barnabas if request.param is Direct else barnabas.aio
    clients: dict[str, Any] = {}

    def make(name: str) -> Any:
        if name not in clients:
            clients[name] = request.param(getattr(package, name), bootstrap_servers=servers, **SETTINGS[name])
            if name == "Producer":
                clients[name].call("init_transactions", {})
                clients[name].call("begin_transaction", {})
        return clients[name]

    yield make
    for client in clients.values():
        client.close()


@pytest.mark.parametrize(("client", "name"), ALL)
def test_what_does_not_fit_is_refused_by_name(made: Callable[[str], Any], client: str, name: str) -> None:
    if name == "send_table":
        table = pytest.importorskip("pyarrow").table({"value": [b"v"]})
    it = made(client)
    bad: list[str] = []
    for parameter, (_, wrong) in CALLS[client][name].items():
        for value in wrong:
            arguments = {other: fits for other, (fits, _) in CALLS[client][name].items()}
            if "table" in arguments:
                arguments["table"] = table
            arguments[parameter] = value
            before = time.monotonic()
            try:
                it.call(name, arguments)
            except (UsageError, TypeError) as error:
                words = ("table",) if parameter == "table" else (parameter, parameter.rstrip("s"), "header")
                if not any(word in str(error) for word in words):
                    bad.append(f"{name}({parameter}={value!r}) does not say what is wrong: {error!r}")
            except Exception as error:
                bad.append(f"{name}({parameter}={value!r}) raises {error!r}")
            else:
                bad.append(f"{name}({parameter}={value!r}) is taken")
            if time.monotonic() - before > 30:
                bad.append(f"{name}({parameter}={value!r}) waits")
    assert not bad, "\n".join(bad)


EXPRESSIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("Producer", "send"): {"topic": "^orders-"},
    ("Producer", "send_many"): {"topic": "^orders-", "values": [b"v"]},
    ("Producer", "partitions_for"): {"topic": "^orders-"},
    ("Consumer", "assign"): {"partitions": [("^orders-", 0)]},
    ("Consumer", "partitions_for"): {"topic": "^orders-"},
    ("Admin", "create_topics"): {"topics": ["^orders-"]},
    ("Admin", "create_partitions"): {"counts": {"^orders-": 3}},
    ("Admin", "delete_topics"): {"names": ["^orders-"]},
    ("Admin", "describe_topics"): {"names": "^orders-"},
}


@pytest.mark.parametrize(("client", "name"), EXPRESSIONS)
def test_a_regular_expression_in_the_place_of_a_name_is_refused_with_a_hint(
    made: Callable[[str], Any], client: str, name: str
) -> None:
    hint = r"\^orders-.*regular expressions are for Consumer\(\.\.\.\) and subscribe; give the name of one topic"
    with pytest.raises(UsageError, match=hint):
        made(client).call(name, EXPRESSIONS[client, name])


@pytest.mark.parametrize("package", [barnabas, barnabas.aio], ids=["sync", "aio"])
@pytest.mark.parametrize("client", CALLS)
def test_settings_that_are_none(package: Any, client: str) -> None:
    kind = getattr(package, client)
    for wrong in ["localhost:9092", 5, ["localhost:9092"], b"localhost:9092"] if client != "Consumer" else []:
        with pytest.raises(UsageError, match="settings are a dict"):
            kind(wrong)
    for value in (b"localhost:9092", {"localhost": 9092}, ""):
        with pytest.raises(UsageError, match="bootstrap"):
            kind(bootstrap_servers=value)
