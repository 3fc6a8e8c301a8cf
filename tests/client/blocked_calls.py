"""Every call of the clients that may block, each in a kind of blockage, and how long it takes to get out of it.

A process of its own, because Ctrl-C is for the whole of one: `python -m client.blocked_calls FRONT KIND ADDRESS`. For
each call it prints a line of JSON: what was done to it, and the seconds until the call had ended and until its client
was closed.

* `ctrl-c`: a signal to the process; then the client is closed.
* `close`: another thread (task) closes the client while the call is blocked.
* `cancel` (asyncio): the task of the call is cancelled; then the client is closed.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import barnabas
import barnabas.aio
from barnabas.errors import ClientError, OperationTimedOut
from stopwatch import Stopwatch

TOPIC: Final = "t"
GROUP: Final = "g"
WHERE: Final = [(TOPIC, 0)]
ASLEEP: Final = 8
"""Looks at a thread that find it asleep, one after the other, before it counts as blocked."""
now: Final = Stopwatch()
LOOK_S: Final = 0.002
TIRED_S: Final = 60.0

Client = Any
ClientRequest = Callable[[Client], Any]
"""Written for the synchronous clients; see `awaited`."""

SEND: Final[dict[str, ClientRequest]] = {
    "send": lambda it: it.send(TOPIC, b"v"),
    "send_many": lambda it: it.send_many(TOPIC, [b"v"] * 10),
    "partitions_for": lambda it: it.partitions_for(TOPIC),
}
UNSENT: Final[dict[str, ClientRequest]] = {
    "result": lambda it: it.send(TOPIC, b"v").result(),
    "flush": lambda it: (it.send(TOPIC, b"v"), it.flush()),
    "close": lambda it: (it.send(TOPIC, b"v"), it.close()),
    "full buffer": lambda it: [it.send(TOPIC, b"v" * 900) for _ in range(100)],
    "full buffer, send_many": lambda it: it.send_many(TOPIC, [b"v" * 900] * 1000),
}
INIT: Final[dict[str, ClientRequest]] = {"init_transactions": lambda it: it.init_transactions()}
TRANSACT: Final[dict[str, ClientRequest]] = {
    "send_offsets": lambda it: it.send_offsets_to_transaction({(TOPIC, 0): 1}, GROUP),
    "commit_transaction": lambda it: (it.send(TOPIC, b"v"), it.commit_transaction()),
    "abort_transaction": lambda it: it.abort_transaction(),
    "close in a transaction": lambda it: it.close(),
}
READ: Final[dict[str, ClientRequest]] = {
    "poll": lambda it: it.poll(),
    "poll(60)": lambda it: it.poll(60),
    "poll_batch": lambda it: it.poll_batch(),
    "iterate": lambda it: next(iter(it)),
    "batches": lambda it: next(it.batches()),
    "arrow": lambda it: next(it.arrow()),
    "process": lambda it: it.process(print),
}
GROUPED: Final[dict[str, ClientRequest]] = {
    "commit": lambda it: it.commit({(TOPIC, 0): 1}),
    "committed": lambda it: it.committed(WHERE),
}
ASK: Final[dict[str, ClientRequest]] = {
    "position": lambda it: it.position((TOPIC, 0)),
    "offsets_for_times": lambda it: it.offsets_for_times({(TOPIC, 0): 1}),
    "beginning_offsets": lambda it: it.beginning_offsets(WHERE),
    "end_offsets": lambda it: it.end_offsets(WHERE),
}
NAMES: Final[dict[str, ClientRequest]] = {"partitions_for": lambda it: it.partitions_for(TOPIC)}
CLUSTER: Final[dict[str, ClientRequest]] = {
    "describe_cluster": lambda it: it.describe_cluster(),
    "create_topics": lambda it: it.create_topics({"new": 1}),
    "delete_topics": lambda it: it.delete_topics(["none"]),
    "list_groups": lambda it: it.list_groups(),
    "describe_log_dirs": lambda it: it.describe_log_dirs(),
}
LISTED: Final[dict[str, ClientRequest]] = {"list_topics": lambda it: it.list_topics()}
OWNED: Final[dict[str, ClientRequest]] = {
    "describe_groups": lambda it: it.describe_groups([GROUP]),
    "list_group_offsets": lambda it: it.list_group_offsets(GROUP),
    "delete_groups": lambda it: it.delete_groups([GROUP]),
    "alter_group_offsets": lambda it: it.alter_group_offsets(GROUP, {(TOPIC, 0): 1}),
    "describe_transactions": lambda it: it.describe_transactions(["tx"]),
}
LED: Final[dict[str, ClientRequest]] = {
    "list_offsets": lambda it: it.list_offsets({(TOPIC, 0): "latest"}),
    "delete_records": lambda it: it.delete_records({(TOPIC, 0): 1}),
    "describe_producers": lambda it: it.describe_producers(WHERE),
}


def producer(front: Any, address: str) -> Client:
    return front.Producer(bootstrap_servers=address, buffer_memory=20_000)


def transactional(front: Any, address: str) -> Client:
    return front.Producer(bootstrap_servers=address, transactional_id="tx")


def member(front: Any, address: str) -> Client:
    return front.Consumer(TOPIC, bootstrap_servers=address, group_id=GROUP)


def reader(front: Any, address: str) -> Client:
    client = front.Consumer(bootstrap_servers=address, group_id=GROUP, auto_offset_reset="earliest")
    client.assign(WHERE)
    return client


def admin(front: Any, address: str) -> Client:
    return front.Admin(bootstrap_servers=address)


Plan = list[tuple[Callable[[Any, str], Client], dict[str, ClientRequest]]]

UNREACHABLE: Final[Plan] = [
    (producer, SEND),
    (transactional, INIT),
    (member, READ | NAMES),
    (reader, {"poll": READ["poll"]} | GROUPED | ASK),
    (admin, CLUSTER | LISTED | OWNED | LED),
]
PLANS: Final[dict[str, Plan]] = {
    "refused": UNREACHABLE,
    "no connection": UNREACHABLE,
    "no name": UNREACHABLE,
    "silent": UNREACHABLE,
    "slow": [
        (producer, UNSENT),
        (transactional, TRANSACT),
        (member, READ),
        (reader, READ | GROUPED | ASK),
        (admin, CLUSTER | OWNED | LED),
    ],
    "rebalance": [(member, READ)],
    "no coordinator": [(transactional, INIT), (member, READ), (reader, GROUPED), (admin, OWNED)],
}


# --- synchronous ------------------------------------------------------------------------------------------------------


def wait_until_blocked(thread: int, over: threading.Event) -> None:
    """The thread has slept for a while: it is in the call."""
    asleep = 0
    deadline = time.monotonic() + TIRED_S
    stat = Path(f"/proc/self/task/{thread}/stat")
    while asleep < ASLEEP and not over.is_set() and time.monotonic() < deadline:
        state = stat.read_text().rsplit(") ", 1)[1][0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(LOOK_S)


def interrupted(call: ClientRequest, client: Client) -> float:
    pressed: list[float] = []
    over = threading.Event()

    def press() -> None:
        wait_until_blocked(os.getpid(), over)
        if over.is_set():
            return
        pressed.append(now())
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    try:
        presser.start()
        call(client)
        over.set()
        presser.join()
    except KeyboardInterrupt:
        ended = now()
    else:
        raise AssertionError("the call is not blocked")
    presser.join()
    return ended - pressed[0]


def closed_meanwhile(call: ClientRequest, client: Client, close: Callable[[], None]) -> tuple[float, float]:
    ended: list[float] = []
    over = threading.Event()
    ids: list[int] = []
    begun, left = threading.Event(), threading.Event()
    why: list[Exception] = []

    def work() -> None:
        ids.append(threading.get_native_id())
        begun.set()
        try:
            call(client)
        except (ClientError, StopIteration) as error:
            why.append(error)
        ended.append(now())
        over.set()
        left.wait(TIRED_S)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    begun.wait()
    wait_until_blocked(ids[0], over)
    assert not ended, f"the call is not blocked: {why}"
    began = now()
    close()
    took = now() - began
    assert over.wait(TIRED_S), "the call does not end"
    left.set()
    return max(ended[0] - began, 0.0), took


def close_of(client: Client) -> Callable[[], Any]:
    """At once: what a producer still has is given up."""
    return (lambda: client.close(0)) if hasattr(client, "flush") else client.close


def run_sync(kind: str, address: str) -> None:
    for make, calls in PLANS[kind]:
        for name, call in calls.items():
            client = begun(make(barnabas, address), name)
            took = interrupted(call, client)
            began = now()
            close_of(client)()
            tell("ctrl-c", make, name, took, now() - began)
            client = begun(make(barnabas, address), name)
            tell("close", make, name, *closed_meanwhile(call, client, close_of(client)))


def begun(client: Client, name: str) -> Client:
    if name in TRANSACT:
        client.init_transactions()
        client.begin_transaction()
    if name in ("abort_transaction", "close in a transaction"):  # what is on its way has to come to its end before
        with contextlib.suppress(OperationTimedOut):
            client.send_offsets_to_transaction({(TOPIC, 0): 1}, GROUP, 0.02)
    return client


# --- asyncio ----------------------------------------------------------------------------------------------------------


class Awaiting:
    """A client of asyncio as the calls above want it: what they do is noted, and done by `run`."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.steps: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def note(*arguments: Any) -> Any:
            self.steps.append((name, arguments))
            return self

        return note

    def __iter__(self) -> Any:
        self.steps.append(("__aiter__", ()))
        return self

    def __next__(self) -> Any:
        return self

    async def run(self) -> None:
        value: Any = None
        for name, arguments in self.steps:
            if name == "result":
                await value
                continue
            value = getattr(self.client, name)(*arguments)
            value = await (anext(value) if hasattr(value, "__anext__") else value)


async def do(call: ClientRequest, client: Client) -> None:
    awaiting = Awaiting(client)
    call(awaiting)
    await awaiting.run()


async def until_blocked(task: "asyncio.Task[None]") -> None:
    """The loop has had nothing to do for a while."""
    for _ in range(ASLEEP):
        await asyncio.sleep(LOOK_S)
    assert not task.done(), f"the call is not blocked: {task}"


async def begun_aio(client: Client, name: str) -> Client:
    if name in TRANSACT:
        await client.init_transactions()
        client.begin_transaction()
    if name in ("abort_transaction", "close in a transaction"):
        with contextlib.suppress(OperationTimedOut):
            await client.send_offsets_to_transaction({(TOPIC, 0): 1}, GROUP, 0.02)
    return client


async def cancelled(client: Client, name: str, call: ClientRequest) -> tuple[float, float]:
    task = asyncio.create_task(do(call, await begun_aio(client, name)))
    await until_blocked(task)
    began = now()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), task
    ended = now()
    await close_of(client)()
    return ended - began, now() - ended


async def closed_by_another(client: Client, name: str, call: ClientRequest) -> tuple[float, float]:
    task = asyncio.create_task(do(call, await begun_aio(client, name)))
    await until_blocked(task)
    began = now()
    await close_of(client)()
    took = now() - began
    with contextlib.suppress(ClientError, StopAsyncIteration):
        await task
    return now() - began, took


def run_aio(kind: str, address: str) -> None:
    for make, calls in PLANS[kind]:
        for name, call in calls.items():

            async def alone(_: Any, make: Any = make, name: str = name, call: ClientRequest = call) -> None:
                async with make(barnabas.aio, address) as client:
                    await do(call, await begun_aio(client, name))

            async def story(make: Any = make, name: str = name, call: ClientRequest = call) -> None:
                tell("cancel", make, name, *await cancelled(make(barnabas.aio, address), name, call))
                tell("close", make, name, *await closed_by_another(make(barnabas.aio, address), name, call))

            asyncio.run(story())
            took = interrupted(lambda _, alone=alone: asyncio.run(alone(None)), None)
            tell("ctrl-c", make, name, took, 0.0)


def tell(what: str, make: Any, name: str, took: float, closed: float) -> None:
    line = {"what": what, "client": make.__name__, "call": name, "took": round(took, 4), "closed": round(closed, 4)}
    print(json.dumps(line), flush=True)


def never_resolve() -> None:
    """Names take for ever."""

    def getaddrinfo(*arguments: Any, **options: Any) -> Any:
        if options.get("flags", 0) & socket.AI_NUMERICHOST or (len(arguments) > 5 and arguments[5]):
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        threading.Event().wait()

    socket.getaddrinfo = getaddrinfo


def main() -> None:
    front, kind, address = sys.argv[1:]
    if kind == "no name":
        never_resolve()
    with now:
        (run_sync if front == "sync" else run_aio)(kind, address)
    os._exit(0)  # a handler of `process` or a name's resolution may never return


if __name__ == "__main__":
    main()
