"""Arbitrary bytes against everything that reads a request: frames, headers, bodies, and the handlers of a whole broker.

    python tests/fuzz/fuzz_frames.py --seconds 600 --seed 1

The first byte of an input chooses what it meets:

* frames: the rest is a stream, cut at random places; the frames that come out are those of a plain parser;
* decoding: the next two bytes choose an API and version, the rest is the body. Only BarnabasError may escape, what is
  decoded survives encoding and decoding, time and memory are bounded;
* a broker: the same request goes to the dispatcher of a real broker in this process, with nobody at the other end.
  Only BarnabasError may escape, and nothing may be logged as an error with a traceback.
"""

import asyncio
import contextlib
import logging
import random
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from fuzz_engine import Target, main

from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.server import Broker
from barnabas.config.broker import BrokerConfig
from barnabas.errors import BarnabasError
from barnabas.network.connection import PendingReply
from barnabas.protocol.apis import SERVED, ApiKey, is_flexible, message_classes
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.framing import BufferPool, FrameReader, FrameTooLarge
from barnabas.protocol.produce import read_produce_request, read_single_partition
from barnabas.protocol.schema import Field, Message, Response
from barnabas.records.builder import build_batch
from barnabas.records.reader import Record
from barnabas.testing.broker import TEST_SETTINGS

FRAMES, DECODING, BROKER = range(3)
FRAME_SIZE_MAX = 1_000_000
DECODING_SECONDS_MAX = 0.05
HANDLING_SECONDS_MAX = 2.0
SLOWER_WHEN_TRACED = 10
MEMORY_FACTOR = 60
MEMORY_BASE = 300_000
MEASURED_EVERY = 50
INPUTS_PER_BROKER = 3_000
TOPICS_MAX = 300

USUAL: dict[str, Any] = {
    "acks": -1,
    "current_leader_epoch": -1,
    "fetch_offset": 0,
    "generation_id": -1,
    "group_id": "group",
    "group_instance_id": None,
    "index": 0,
    "last_fetched_epoch": -1,
    "max_bytes": 1_000_000,
    "max_wait_ms": 0,
    "member_id": "",
    "partition": 0,
    "partition_index": 0,
    "protocol_type": "consumer",
    "replica_id": -1,
    "session_epoch": -1,
    "session_id": 0,
    "session_timeout_ms": 10_000,
    "timeout_ms": 100,
    "transactional_id": None,
}
"""What seeds say in these fields, so that handlers go on; 1 and "topic" elsewhere."""

VERSIONS = [(key, version) for key, served in SERVED.items() for version in range(served.first, served.last + 1)]


# --- frames -----------------------------------------------------------------------------------------------------------


def plain_frames(stream: bytes) -> tuple[list[bytes], bool]:
    """The whole frames of the stream, and whether it ends in an impossible size."""
    frames: list[bytes] = []
    position = 0
    while len(stream) - position >= 4:
        size = int.from_bytes(stream[position : position + 4], "big", signed=True)
        if not 0 <= size <= FRAME_SIZE_MAX:
            return frames, True
        position += 4
        if len(stream) - position < size:
            break
        frames.append(stream[position : position + size])
        position += size
    return frames, False


def run_frames(seed: int, stream: bytes) -> str:
    rng = random.Random(seed)
    expected, impossible = plain_frames(stream)
    pool = BufferPool()
    reader = FrameReader(pool, FRAME_SIZE_MAX)
    frames: list[bytes] = []
    position, refused = 0, False
    largest = rng.choice((1, 3, 4, 5, 100, 70_000, 300_000))
    while position < len(stream) and not refused:
        buffer = reader.buffer()
        assert len(buffer) > 0, "no room for the next byte"
        count = min(rng.randint(1, largest), len(buffer), len(stream) - position)
        buffer[:count] = stream[position : position + count]
        position += count
        try:
            frames += map(bytes, reader.received(count))
        except FrameTooLarge:
            refused = True
    reader.close()
    assert refused == impossible
    # What came in one piece with an impossible size is refused with it.
    assert frames == expected[: len(frames)]
    assert refused or frames == expected
    return f"frames {min(len(frames), 5)} {refused} {largest}"


# --- decoding ---------------------------------------------------------------------------------------------------------


class Nobody:
    """The other end of a connection, as handlers see it."""

    def __init__(self) -> None:
        self.closed = False
        self.why = ""
        self.state: dict[str, Any] | None = None
        self.client_software = ""
        self.listener_name = "PLAINTEXT"
        self.peer_host = self.local_host = "127.0.0.1"
        self.peer_port, self.local_port = 50_000, 9092

    def pending_reply(self) -> PendingReply:
        return PendingReply(cast(Any, self))

    def reply_ready(self, reply: PendingReply) -> None:
        pass

    def mute(self) -> None:
        pass

    def unmute(self) -> None:
        pass

    def close(self, reason: str) -> None:
        self.closed = True
        self.why = reason


def read_fetch(_: Any, frame: memoryview, position: int, context: RequestContext) -> tuple[()]:
    check_decoded(context.api_key, context.api_version, bytes(frame[position:]))
    return ()


def read_produce(_: Any, frame: memoryview, position: int, context: RequestContext) -> tuple[()]:
    version = context.api_version
    single = read_single_partition(frame, position, version)
    whole = read_produce_request(frame, position, version)
    if single is not None:
        common, records = single
        assert (common.acks, common.timeout_ms) == (whole.acks, whole.timeout_ms)
        assert [topic.partitions for topic in whole.topics] == [[(common.partition, records)]]
        assert (common.topic.name, common.topic.topic_id) == (whole.topics[0].name, whole.topics[0].topic_id)
    return ()


def check_decoded(api_key: int, version: int, body: bytes) -> None:
    """Decode, and again after encoding: nothing may be lost that the message says it has."""
    request_class = message_classes(api_key)[0]
    if api_key == ApiKey.API_VERSIONS:
        version = min(version, SERVED[api_key].last)
    request, end = decode(request_class, version, body)
    assert end <= len(body)
    again, _ = decode(request_class, version, encode(request, version))
    assert again == request or has_nan(request), f"{request} became {again}"


def has_nan(message: Message) -> bool:
    return "nan" in repr(message)


HEADERS = Dispatcher(cast(Any, SimpleNamespace(loop=None)))


def read_hot(frame: memoryview) -> None:
    """Reads what the handlers of hot requests do."""
    context, position = HEADERS.read_header(cast(Any, Nobody()), frame)
    if context.api_key == ApiKey.PRODUCE:
        read_produce(None, frame, position, context)
    else:
        read_fetch(None, frame, position, context)


def request_frame(choice: int, rest: bytes) -> bytes:
    """A frame whose header is right for the chosen API and version; every 16th choice takes the input as it is."""
    if choice % 16 == 15:
        return rest
    api_key, version = VERSIONS[(choice >> 4) % len(VERSIONS)]
    tags = b"\0" if is_flexible(api_key, version) else b""
    return int(api_key).to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\4fuzz" + tags + rest


def patience(seconds: float) -> float:
    """Counting branches, as atheris does, takes its time."""
    return seconds * (SLOWER_WHEN_TRACED if "atheris" in sys.modules else 1)


def run_decoding(frame: bytes, measured: bool) -> str:
    view = memoryview(frame)
    if measured:
        tracemalloc.start()
    start = time.thread_time()
    try:
        read_hot(view)
        outcome = "decoded"
    except BarnabasError as error:
        outcome = type(error).__name__
    finally:
        spent = time.thread_time() - start
        peak = 0
        if measured:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    if measured:
        assert peak < MEMORY_BASE + MEMORY_FACTOR * len(frame), f"{peak} bytes for a frame of {len(frame)}"
    elif spent >= patience(DECODING_SECONDS_MAX):
        # A reader that had to be compiled, or a busy machine: it must be quick at another try.
        spent = min(quickest(view) for _ in range(3))
        assert spent < patience(DECODING_SECONDS_MAX), f"{spent:.3f} s for a frame of {len(frame)} bytes"
    return outcome


def quickest(view: memoryview) -> float:
    start = time.thread_time()
    with contextlib.suppress(BarnabasError):
        read_hot(view)
    return time.thread_time() - start


# --- a broker ---------------------------------------------------------------------------------------------------------


class Rig(logging.Handler):
    """A broker without clients, made anew now and then: requests that are accepted change it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._broker: Broker | None = None
        self._inputs = 0
        self.failures: list[str] = []
        shared = Path("/dev/shm")
        self._parent = str(shared) if shared.is_dir() else None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.failures.append(logging.Formatter().format(record))

    def run(self, frame: bytes) -> str:
        broker = self._running()
        self._inputs += 1
        nobody = Nobody()
        start = time.thread_time()
        try:
            context, position = broker.dispatcher.read_header(cast(Any, nobody), memoryview(frame))
            answer = broker.dispatcher.handle(context, memoryview(frame), position)
            if isinstance(answer, PendingReply):
                outcome = "parked"
            else:
                outcome = f"answered {sum(len(part) for part in answer) // 4 % 64}"
        except BarnabasError as error:
            outcome = type(error).__name__
        self._turn(broker.loop)
        spent = time.thread_time() - start
        nobody.closed = True
        assert not self.failures, self.failures.pop()
        assert spent < patience(HANDLING_SECONDS_MAX), f"{spent:.3f} s for a frame of {len(frame)} bytes"
        return outcome

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(loop.stop)
        loop.run_forever()

    def _running(self) -> Broker:
        if self._broker is not None and (
            self._inputs >= INPUTS_PER_BROKER or len(self._broker.image.topics) > TOPICS_MAX
        ):
            self.close()
        if self._broker is None:
            self._inputs = 0
            self._directory = tempfile.mkdtemp(prefix="barnabas-fuzz-", dir=self._parent)
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda _, context: self.failures.append(repr(context)))
            settings = {**TEST_SETTINGS, "log.dirs": self._directory, "listeners": "PLAINTEXT://127.0.0.1:0"}
            self._broker = Broker(BrokerConfig.of(settings), loop)
            logging.getLogger("barnabas").addHandler(self)
            self._broker.start()
            self.run(topic_seed())
        return self._broker

    def close(self) -> None:
        logging.getLogger("barnabas").removeHandler(self)
        if self._broker is not None:
            broker, self._broker = self._broker, None
            broker.stop()
            self._turn(broker.loop)
            broker.loop.close()
            shutil.rmtree(self._directory, ignore_errors=True)


RIG = Rig()


# --- inputs -----------------------------------------------------------------------------------------------------------

_counter = 0


def run(data: bytes) -> str:
    """Put one input through; a word for the way it took."""
    global _counter
    _counter += 1
    if len(data) < 3:
        return "nothing"
    what, choice, rest = data[0] % 3, int.from_bytes(data[1:3], "big"), data[3:]
    if what == FRAMES:
        return run_frames(choice, rest)
    frame = request_frame(choice, rest)
    key = VERSIONS[(choice >> 4) % len(VERSIONS)] if choice % 16 != 15 else None
    if what == DECODING:
        return f"{key} {run_decoding(frame, _counter % MEASURED_EVERY == 0)}"
    return f"{key} {RIG.run(frame)}"


def example(message_class: type[Message], version: int) -> Message:
    """A message with one element in each array, and a value in each field."""
    values = {}
    for field in message_class.SCHEMA:
        if field.first <= version <= field.last:
            value = example_value(field, version)
            values[field.name] = [value] if field.array else value
    return message_class(**values)


def example_value(field: Field, version: int) -> Any:
    if not isinstance(field.kind, str):
        return example(field.kind, version)
    usual = USUAL.get(field.name, ...)
    if usual is not ... and (usual is not None or version >= field.nullable_from):
        return usual
    match field.kind:
        case "string":
            return "topic"
        case "bytes" | "records":
            return example_batch()
        case "bool":
            return True
        case "uuid":
            return type(field.default)(int=7)
        case "float64":
            return 1.5
    return 1


def example_batch() -> bytes:
    return bytes(build_batch([Record(0, 1_700_000_000_000, b"key", b"value", ())]))


def request_bodies() -> Iterator[tuple[int, bytes]]:
    """(choice, body) of each API at its first and last version, and of Produce and Fetch at all of theirs."""
    for number, (api_key, version) in enumerate(VERSIONS):
        served = SERVED[api_key]
        if version in (served.first, served.last) or api_key in (ApiKey.PRODUCE, ApiKey.FETCH):
            yield number << 4, encode(example(message_classes(api_key)[0], version), version)


def topic_seed() -> bytes:
    """The request that makes `topic`."""
    number = VERSIONS.index((ApiKey.CREATE_TOPICS, 7))
    assert issubclass(message_classes(ApiKey.CREATE_TOPICS)[1], Response)
    from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

    wanted = CreatableTopic(name="topic", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    body = encode(CreateTopicsRequest(topics=[wanted], timeout_ms=1000, validate_only=False), 7)
    return request_frame(number << 4, body)


def seeds() -> list[bytes]:
    found = []
    for choice, body in request_bodies():
        found += [bytes([what]) + choice.to_bytes(2, "big") + body for what in (DECODING, BROKER)]
    stream = b"".join(size.to_bytes(4, "big") + bytes(size) for size in (0, 1, 10, 5000))
    found += [bytes([FRAMES, 0, seed]) + stream for seed in range(6)]
    found.append(bytes([FRAMES, 0, 9]) + stream + (2**31 - 1).to_bytes(4, "big"))
    return found


TARGET = Target("frames", run, seeds, close=RIG.close)

if __name__ == "__main__":
    main(TARGET, __doc__)
