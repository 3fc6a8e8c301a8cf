"""Every message of every version against kio, an independent implementation of the same schemas."""

import io
import random

import pytest

kio_index = pytest.importorskip("kio.index", reason="kio is a development dependency")
from kio.serial import entity_reader, entity_writer  # noqa: E402

from barnabas.protocol import apis  # noqa: E402
from barnabas.protocol.codec import MalformedMessage, decode, encode, encode_slices  # noqa: E402
from barnabas.protocol.messages.fetch import FetchResponse  # noqa: E402
from barnabas.protocol.messages.find_coordinator import FindCoordinatorResponse  # noqa: E402
from barnabas.protocol.messages.index import REQUESTS  # noqa: E402
from barnabas.protocol.primitives import Part  # noqa: E402
from barnabas.protocol.schema import Field, Message  # noqa: E402

OWN_TAGS_FROM = 10_000
"""Tagged fields of our own, which kio does not know."""
NEWER_THAN_KIO = {(18, 5), (28, 6), (42, 3)}
"""API keys and versions that only Kafka 4.4.0 itself can be compared with."""
_RANGES = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def _value(field: Field, version: int, rng: random.Random, depth: int = 0):
    if field.array:
        element = field._replace(array=False, nullable_from=32767)
        return [_value(element, version, rng, depth + 1) for _ in range(rng.choice([0, 1, 2]) if depth < 3 else 1)]
    match field.kind:
        case "uuid":
            import uuid

            return uuid.UUID(int=rng.getrandbits(128) | 1)
        case "string":
            return rng.choice(["", "a", "topic-ä", "x" * 200])
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 1, 300]))
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return float(rng.randrange(1000))
        case "uint16":
            return rng.randrange(1 << 16)
        case "uint32":
            return rng.randrange(1 << 32)
        case str() as kind:
            if "error_code" in field.name:
                return rng.choice([0, 3, 42, -1])
            if field.name.endswith("_ms") or "timestamp" in field.name or "timeout" in field.name:
                return rng.randrange(1 << 31)
            return rng.randrange(1 << _RANGES[kind])
        case cls:
            return random_message(cls, version, rng, depth)


def random_message(cls: type[Message], version: int, rng: random.Random, depth: int = 0) -> Message:
    present = [f for f in cls.SCHEMA if f.first <= version <= f.last and f.tag < OWN_TAGS_FROM]
    return cls(**{f.name: _value(f, version, rng, depth) for f in present})


def _all_cases(*, known_to_kio: bool = False):
    for key in REQUESTS:
        for index, kind in ((0, "request"), (1, "response")):
            cls = apis.message_classes(key)[index]
            for version in range(cls.FIRST_VERSION, cls.LAST_VERSION + 1):
                if known_to_kio and (key, version) in NEWER_THAN_KIO:
                    continue
                yield pytest.param(key, kind, cls, version, id=f"{cls.__name__}-v{version}")


CASES = list(_all_cases())


@pytest.mark.parametrize(("key", "kind", "cls", "version"), [*_all_cases(known_to_kio=True)])
def test_agrees_with_kio(key, kind, cls, version):
    rng = random.Random(f"{key}{kind}{version}")
    load = kio_index.load_request_schema if kind == "request" else kio_index.load_response_schema
    kio_class = load(key, version)
    for _ in range(5):
        message = random_message(cls, version, rng)
        data = encode(message, version)
        theirs, size = entity_reader(kio_class)(data, 0)
        assert size == len(data)
        with io.BytesIO() as buffer:
            entity_writer(kio_class)(buffer, theirs)
            assert buffer.getvalue() == data
        ours, end = decode(cls, version, data)
        assert end == len(data)
        assert ours == message
        in_slices = bytearray()
        for _ in encode_slices(in_slices, message, version):
            pass
        assert in_slices == data


@pytest.mark.parametrize(("key", "kind", "cls", "version"), CASES)
def test_truncated_or_mutated_is_malformed_or_a_message(key, kind, cls, version):
    rng = random.Random(f"{key}{kind}{version}")
    data = encode(random_message(cls, version, rng), version)
    for cut in range(0, len(data), max(1, len(data) // 40)):
        with pytest.raises(MalformedMessage):
            decode(cls, version, data[:cut])
    for _ in range(40):
        mutated = bytearray(data)
        if mutated:
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        try:
            decode(cls, version, bytes(mutated))
        except MalformedMessage:
            continue


@pytest.mark.parametrize("version", range(FetchResponse.FIRST_VERSION, FetchResponse.LAST_VERSION + 1))
def test_records_may_stay_where_they_are(version):
    messages = (random_message(FetchResponse, version, random.Random(seed)) for seed in range(100))
    message = next(m for m in messages if any(p.records for topic in m.responses for p in topic.partitions))
    data = b"..." + encode(message, version) + b"..."
    copied, end = decode(FetchResponse, version, data, 3)
    left, same_end = decode(FetchResponse, version, data, 3, parts=True)
    assert same_end == end
    seen = 0
    for topic, same_topic in zip(copied.responses, left.responses, strict=True):
        for partition, same in zip(topic.partitions, same_topic.partitions, strict=True):
            if partition.records is None:
                assert same.records is None
                continue
            assert isinstance(same.records, Part)
            assert same.records.data is data
            assert len(same.records) == len(partition.records)
            assert bytes(same.records) == partition.records
            same.records = partition.records
            seen += 1
    assert left == copied
    assert seen
    for cut in range(3, end):
        with pytest.raises(MalformedMessage):
            decode(FetchResponse, version, data[:cut], 3, parts=True)


@pytest.mark.parametrize("version", [2, 3], ids=["legacy", "flexible"])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("x" * 32_766, 32_766),
        ("x" * 32_767, 32_767),
        ("x" * 32_768, 32_767),
        ("x" * 70_000, 32_767),
        ("x" * 32_766 + "\N{EURO SIGN}!", 32_766),
        ("\N{EURO SIGN}" * 20_000, 10_922),
    ],
)
def test_texts_that_no_message_can_carry_are_cut_behind_a_character(version: int, text: str, kept: int) -> None:
    answer = FindCoordinatorResponse(error_code=15, error_message=text, node_id=3, host="h", port=9)
    read, end = decode(FindCoordinatorResponse, version, encode(answer, version))
    assert end == len(encode(answer, version))
    assert (read.error_message, read.node_id, read.port) == (text[:kept], 3, 9)
