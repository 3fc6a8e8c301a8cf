"""Damaged batches against the records package: every outcome must be data or a KafkaError, in bounded memory and time.

    python tests/fuzz/fuzz_records.py --seconds 600 --seed 1

Guided by coverage if atheris is installed, else by random mutation of the corpus (an input with a new outcome is
kept in memory and mutated further). `corpus/records` holds the seeds; a finding is written to `build/fuzz-records`.
Half of the inputs get their checksum put right, since nothing else would ever get past it.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.errors import KafkaError
from barnabas.protocol.primitives import Part
from barnabas.records.batch import HEADER_SIZE, crc_of, iter_headers, set_crc
from barnabas.records.compression import DamagedData, DecompressedTooLarge, decompress
from barnabas.records.reader import iter_any, read_records
from barnabas.records.validation import (
    AppendPolicy,
    ValidatedBatch,
    record_errors_of,
    validate_produce,
    validate_replicated,
)
from barnabas.types import TopicPartition

HERE = Path(__file__).parent
CORPUS = HERE / "corpus" / "records"
FINDINGS = HERE.parent.parent / "build" / "fuzz-records"
WHERE = TopicPartition("topic", 0)
NOW = 1_800_000_000_000
SECONDS_MAX = 2.0
INPUT_MAX = 65_536
BOUND = 4_000_000

POLICIES = (
    AppendPolicy(),
    AppendPolicy(compacted=True, timestamp_before_max_ms=10**12, timestamp_after_max_ms=2**63 - 1),
    AppendPolicy(log_append_time=True),
    AppendPolicy(compression_type="lz4", max_message_bytes=100_000),
    AppendPolicy(compression_type="uncompressed", timestamp_after_max_ms=2**63 - 1),
)


def run(data: bytes) -> str:
    """Put one input through everything; a word for the way it took. Raises AssertionError and what is not ours."""
    if not data:
        return "nothing"
    choice, body = data[0], bytearray(data[1:])
    if choice & 1 and len(body) >= HEADER_SIZE:
        set_crc(body)
    policy = POLICIES[(choice >> 1) % len(POLICIES)]
    outcome = [str(policy.compression_type)]
    try:
        check_accepted(validate_produce(memoryview(body), policy, NOW), policy)
        outcome.append("accepted")
    except KafkaError as error:
        outcome.append(f"{error.code} {len(error.message.split())} {min(len(record_errors_of(error)), 3)}")
    readers: tuple[Callable[[], object], ...] = (
        lambda: [header.size_bytes for header, _ in validate_replicated(body)],
        lambda: read_records(body, max_bytes=BOUND),
        lambda: list(iter_any(body, check_crc=False, max_bytes=BOUND)),
        lambda: list(iter_headers(body)),
        lambda: consumed(body),
    )
    for reader in readers:
        try:
            outcome.append(str(bool(reader())))
        except KafkaError as error:
            outcome.append(f"{error.code}")
    try:
        assert len(decompress(choice >> 5, body, BOUND)) <= BOUND
        outcome.append("decompressed")
    except (DamagedData, DecompressedTooLarge) as error:
        outcome.append(type(error).__name__)
    return " ".join(outcome)


def check_accepted(accepted: ValidatedBatch, policy: AppendPolicy) -> None:
    """What was accepted must be readable by the strictest reader."""
    header, payload = accepted.header, accepted.payload
    assert header.crc == crc_of(payload)
    assert header.size_bytes == len(payload) <= policy.max_message_bytes
    records = read_records(payload, max_bytes=policy.decompression_bound(len(payload)))
    assert [record.offset for record in records] == list(range(header.record_count))
    assert header.max_timestamp == max(-1, *(record.timestamp for record in records))
    assert header.is_log_append_time == policy.log_append_time
    assert not policy.compacted or all(record.key is not None for record in records)


def consumed(data: bytearray) -> int:
    """What a consumer sees, one by one and as Arrow batches: the same, and nothing of it twice."""
    one_by_one = CompletedFetch(WHERE, data, 3, aborted=[(1, 0)], max_bytes=BOUND)
    offsets = []
    failure: KafkaError | None = None
    try:
        while records := one_by_one.read(7):
            offsets += [record.offset for record in records]
            assert all(isinstance(record.headers, tuple) for record in records)
    except KafkaError as error:
        failure = error
    assert offsets == sorted(set(offsets))
    assert all(3 <= offset < one_by_one.next_offset for offset in offsets)
    arrow = CompletedFetch(WHERE, data, 3, aborted=[(1, 0)], max_bytes=BOUND)
    count = 0
    try:
        while (batch := arrow.read_arrow(headers=True, size_bytes=1000)) is not None:
            batch.validate(full=True)
            assert batch.column("offset").to_pylist() == offsets[count : count + batch.num_rows]
            count += batch.num_rows
        assert failure is None
        assert count == len(offsets)
    except KafkaError:
        assert failure is not None
    batches = CompletedFetch(WHERE, Part(bytes(data) * 2, 0, len(data)), 3, aborted=[(1, 0)], max_bytes=BOUND)
    by_batch: list[int] = []
    try:
        while (records_of := batches.read_batch(size_bytes=1000)) is not None:
            by_batch += [record.offset for record in records_of]
            assert records_of.values() == [record.value for record in records_of]
        assert failure is None
    except KafkaError:
        assert failure is not None
    assert by_batch == offsets[:count]
    if failure is not None:
        raise failure
    return count


def guarded(data: bytes) -> str:
    start = time.monotonic()
    outcome = run(data)
    assert time.monotonic() - start < SECONDS_MAX, "too slow"
    return outcome


def seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted(CORPUS.iterdir())]


def mutated(rng: random.Random, data: bytes, pool: list[bytes]) -> bytes:
    body = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        position = rng.randrange(len(body) + 1)
        match rng.randrange(8):
            case 0 | 1:
                if position < len(body):
                    body[position] ^= 1 << rng.randrange(8)
            case 2:
                body[position : position + 1] = bytes([rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))])
            case 3:
                size = rng.choice((2, 4, 8))
                number = rng.choice((0, 1, -1, 2**31 - 1, 2**15, -(2**31), len(body), rng.randrange(2**16)))
                body[position : position + size] = (number % 256**size).to_bytes(size, rng.choice(("big", "little")))
            case 4:
                del body[position : position + rng.choice((1, 2, 8, 64))]
            case 5:
                body[position:position] = rng.randbytes(rng.choice((1, 2, 8, 64)))
            case 6:
                other = rng.choice(pool)
                start = rng.randrange(len(other) + 1)
                body[position:position] = other[start : start + rng.randrange(200)]
            case _:
                body[:1] = rng.randbytes(1)
    return bytes(body[:INPUT_MAX])


def by_mutation(seconds: float, seed: int) -> None:
    rng = random.Random(seed)
    pool = seeds()
    seen = {guarded(data) for data in pool}
    end = time.monotonic() + seconds
    runs = 0
    while time.monotonic() < end:
        data = mutated(rng, rng.choice(pool), pool)
        runs += 1
        try:
            outcome = guarded(data)
        except BaseException as error:
            FINDINGS.mkdir(parents=True, exist_ok=True)
            path = FINDINGS / f"records-{seed}-{runs}"
            path.write_bytes(data)
            sys.exit(f"{path}: {type(error).__name__}: {error}\nto see it again: {sys.argv[0]} --replay {path}")
        if outcome not in seen:
            seen.add(outcome)
            pool.append(data)
    print(f"{runs} inputs, {len(seen)} ways, seed {seed}, no finding")


def by_coverage(seconds: int, seed: int) -> None:
    import atheris

    atheris.instrument_all()
    FINDINGS.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={INPUT_MAX}", f"-artifact_prefix={FINDINGS}/"]
    work = FINDINGS / "corpus"
    work.mkdir(exist_ok=True)
    atheris.Setup(
        [sys.argv[0], *options, "-timeout=5", "-rss_limit_mb=1024", str(work), str(CORPUS)],
        lambda data: [run(data), None][1],
    )
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("auto", "atheris", "mutation"), default="auto")
    parser.add_argument("--replay", type=Path, help="run one input again, with its traceback")
    options = parser.parse_args()
    if options.replay is not None:
        print(guarded(options.replay.read_bytes()))
        return
    if options.engine != "mutation":
        try:
            by_coverage(options.seconds, options.seed)
        except ImportError:
            if options.engine == "atheris":
                sys.exit("atheris is not installed; use --engine mutation, or pip install atheris")
        else:
            return
    by_mutation(options.seconds, options.seed)


if __name__ == "__main__":
    main()
