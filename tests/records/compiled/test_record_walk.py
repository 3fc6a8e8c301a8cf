"""The kernel by itself: varints at their limits, and the two forms of the module against each other."""

import random
from types import ModuleType

import pytest
from librt.strings import BytesWriter
from poisons import record_bytes, varint

from barnabas.records.compiled import record_walk
from source_forms import RECORD_WALK

NUMBERS = sorted(
    {0, 1, -1, 63, 64, -64, -65, 2**31 - 1, -(2**31)}
    | {sign * (1 << bit) + d for bit in range(31) for sign in (1, -1) for d in (-1, 0)}
)
LONG_NUMBERS = sorted(
    {2**63 - 1, -(2**63)} | {sign * (1 << bit) + d for bit in range(62) for sign in (1, -1) for d in (-1, 0)}
)
ALL = (1 << 63) - 1


def check(module: ModuleType, data: bytes, count: int = 1, low: int = -(2**63), high: int = ALL) -> int:
    refused: list[tuple[int, int, int, int]] = []
    result = module.check_records(data, 0, count, low, high, -1, False, refused, 10)
    return int(result)


def test_source_is_not_compiled() -> None:
    assert not RECORD_WALK.is_compiled()


@pytest.mark.parametrize("number", LONG_NUMBERS)
def test_timestamp_deltas(record_kernel: ModuleType, number: int) -> None:
    data = record_bytes(0, number)
    assert check(record_kernel, data) == number
    (record,) = record_kernel.read_records(data, 0, 1, 0, 0, None)
    assert record.timestamp == number
    out = BytesWriter()
    record_kernel.write_record(out, 0, number, b"key", b"value", ())
    assert out.getvalue() == data


@pytest.mark.parametrize("number", NUMBERS)
def test_offset_deltas(record_kernel: ModuleType, number: int) -> None:
    data = record_bytes(number)
    (record,) = record_kernel.read_records(data, 0, 1, 2**40, 0, None)
    assert record.offset == 2**40 + number
    refused: list[tuple[int, int, int, int]] = []
    record_kernel.check_records(data, 0, 1, -5, 5, -1, False, refused, 10)
    assert refused == ([] if number == 0 else [(0, number, 0, 3)])


@pytest.mark.parametrize(
    "length",
    [
        b"\x80\x80\x80\x80\x80\x01",  # six bytes
        b"\xff\xff\xff\xff\x1f",  # 33 bits
        b"\xff" * 20,
    ],
)
def test_oversized_varints(record_kernel: ModuleType, length: bytes) -> None:
    for data in (length + bytes(50), record_bytes(0)[:4] + length + bytes(50)):
        with pytest.raises((ValueError, IndexError)):
            check(record_kernel, data)
        with pytest.raises((ValueError, IndexError)):
            record_kernel.read_records(data, 0, 1, 0, 0, None)


@pytest.mark.parametrize("delta", [b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01", b"\x80" * 9 + b"\x7f"])
def test_oversized_varlongs(record_kernel: ModuleType, delta: bytes) -> None:
    body = b"\0" + delta + b"\0\1\1\0"
    with pytest.raises(ValueError, match="64 bits"):
        check(record_kernel, varint(len(body)) + body)


def test_bounds_and_exemption(record_kernel: ModuleType) -> None:
    data = b"".join(record_bytes(i, delta) for i, delta in enumerate((-11, -10, -1, 10, 11)))
    refused: list[tuple[int, int, int, int]] = []
    assert record_kernel.check_records(data, 0, 5, 0, 10, -1, False, refused, 10) == 11
    assert [(index, delta) for index, _, delta, _ in refused] == [(0, -11), (1, -10), (4, 11)]
    refused = []
    record_kernel.check_records(data, 0, 5, 0, 10, -1, False, refused, 2)
    assert len(refused) == 2


def test_keys(record_kernel: ModuleType) -> None:
    data = record_bytes(0, key=None) + record_bytes(1, key=b"") + record_bytes(2)
    refused: list[tuple[int, int, int, int]] = []
    record_kernel.check_records(data, 0, 3, -5, 5, -1, True, refused, 10)
    assert refused == [(0, 0, 0, -1)]


def test_structure_goes_before_acceptance(record_kernel: ModuleType) -> None:
    with pytest.raises(ValueError):
        check(record_kernel, record_bytes(7) + record_bytes(1, length_off_by=1), 2)


@pytest.mark.skipif(not record_walk.is_compiled(), reason="nothing to compare")
def test_both_forms_agree_on_damage() -> None:
    rng = random.Random(11)
    good = b"".join(
        record_bytes(i, rng.randint(-(2**40), 2**40), headers=varint(1) + varint(1) + b"h" + varint(2) + b"xy")
        for i in range(40)
    )
    for _ in range(4_000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            position = rng.randrange(len(data))
            data[position : position + rng.choice((0, 1, 1, 1))] = rng.randbytes(rng.choice((0, 1, 1, 1, 6)))
        assert outcome(record_walk, bytes(data)) == outcome(RECORD_WALK, bytes(data))


def outcome(module: ModuleType, data: bytes) -> object:
    found: list[object] = []
    refused: list[tuple[int, int, int, int]] = []
    try:
        found.append(module.check_records(data, 0, 40, -(2**39), 2**39, -1, True, refused, 100))
    except (ValueError, IndexError) as error:
        found.append(type(error))
    try:
        found.append(module.read_records(data, 0, 40, 1000, 2000, None))
    except (ValueError, IndexError) as error:
        found.append(type(error))
    return found, refused
