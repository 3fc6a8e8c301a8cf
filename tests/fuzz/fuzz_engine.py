"""What the fuzzers share: mutation of a pool of seeds, coverage guidance by atheris, the command line, findings.

A target is a function from bytes to a word for the way the input took; whatever it raises is a finding. Guided by
coverage if atheris is installed (`pip install atheris`, CPython 3.11-3.13), else by random mutation, where an input
with a new word is kept in memory and mutated further.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HERE", "Finding", "Target", "fuzz_by_mutation", "main", "mutated"]

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build"
_NUMBERS = (0, 1, 2, -1, 127, 128, 2**15 - 1, 2**15, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


class Finding(Exception):
    """An input that the target did not survive, and where it lies."""


@dataclass(frozen=True)
class Target:
    """`run` is called with each input, of at most `input_max` bytes."""

    name: str
    run: Callable[[bytes], str]
    seeds: Callable[[], list[bytes]]
    input_max: int = 65_536
    close: Callable[[], None] = lambda: None

    @property
    def corpus(self) -> Path:
        return HERE / "corpus" / self.name

    @property
    def findings(self) -> Path:
        return BUILD / f"fuzz-{self.name}"

    def all_seeds(self) -> list[bytes]:
        kept = [path.read_bytes() for path in sorted(self.corpus.iterdir())] if self.corpus.is_dir() else []
        return self.seeds() + kept


def mutated(rng: random.Random, data: bytes, pool: Sequence[bytes], size_max: int) -> bytes:
    """A child of `data`: a few flips, numbers, cuts, insertions, and pieces of other inputs."""
    body = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        position = rng.randrange(len(body) + 1)
        match rng.randrange(8):
            case 0:
                if position < len(body):
                    body[position] ^= 1 << rng.randrange(8)
            case 1:
                body[position : position + 1] = bytes([rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))])
            case 2:
                size = rng.choice((2, 4, 8))
                number = rng.choice((*_NUMBERS, len(body), rng.randrange(2**16)))
                body[position : position + size] = (number % 256**size).to_bytes(size, "big")
            case 3:
                del body[position : position + rng.choice((1, 2, 8, 64))]
            case 4:
                body[position:position] = rng.randbytes(rng.choice((1, 2, 8, 64)))
            case 5:
                other = rng.choice(pool)
                start = rng.randrange(len(other) + 1)
                body[position:position] = other[start : start + rng.randrange(200)]
            case 6:
                size = rng.choice((1, 4, 16))
                body[position:position] = body[position : position + size] * rng.choice((2, 16, 256))
            case _:
                body[:4] = rng.randbytes(4)
    return bytes(body[:size_max])


def fuzz_by_mutation(target: Target, seconds: float, seed: int) -> str:
    """Runs for that long; what was done, as a line. Raises Finding."""
    rng = random.Random(seed)
    pool = target.all_seeds()
    seen: set[str] = set()
    runs, began = 0, time.process_time()

    def one(data: bytes) -> None:
        nonlocal runs
        runs += 1
        try:
            outcome = target.run(data)
        except Exception as error:
            target.findings.mkdir(parents=True, exist_ok=True)
            path = target.findings / f"{target.name}-{seed}-{runs}"
            path.write_bytes(data)
            script = HERE / f"fuzz_{target.name}.py"
            raise Finding(
                f"{path}: {type(error).__name__}: {error}; to see it again: {script} --replay {path}"
            ) from error
        if outcome not in seen:
            seen.add(outcome)
            pool.append(data)

    end = time.monotonic() + seconds
    try:
        for data in list(pool):
            one(data)
        while time.monotonic() < end:
            one(mutated(rng, rng.choice(pool), pool, target.input_max))
    finally:
        target.close()
    return f"{runs} inputs, {len(seen)} ways, {time.process_time() - began:.0f} s of CPU, seed {seed}, no finding"


def _fuzz_by_coverage(target: Target, seconds: int, seed: int) -> None:
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    atheris.instrument_all()
    work = target.findings / "corpus"
    work.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.all_seeds()):
        (work / f"seed-{number}").write_bytes(data)
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-max_len={target.input_max}",
            f"-artifact_prefix={target.findings}/",
            "-timeout=20",
            "-len_control=0",
            "-rss_limit_mb=1500",
            "-print_final_stats=1",
            str(work),
        ],
        lambda data: [target.run(data), None][1],
    )
    atheris.Fuzz()


def main(target: Target, doc: str | None) -> None:
    """The command line of a fuzzer."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("auto", "atheris", "mutation"), default="auto")
    parser.add_argument("--replay", type=Path, nargs="+", help="run inputs again, with their traceback")
    options = parser.parse_args()
    if options.replay is not None:
        for path in options.replay:
            print(path, target.run(path.read_bytes()))
        target.close()
        return
    if options.engine != "mutation":
        try:
            import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401
        except ImportError:
            if options.engine == "atheris":
                sys.exit("atheris is not installed; use --engine mutation, or pip install atheris")
            print(
                "atheris is not installed: inputs are mutated at random, without looking at coverage", file=sys.stderr
            )
        else:
            _fuzz_by_coverage(target, options.seconds, options.seed)
            return
    try:
        print(fuzz_by_mutation(target, options.seconds, options.seed))
    except Finding as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)
        os._exit(1)
