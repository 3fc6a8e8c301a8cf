"""A few seconds of each fuzzer with every test run, always with the same seed."""

from collections.abc import Callable

import fuzz_frames
import fuzz_records
import fuzz_recovery
import pytest
from fuzz_engine import Target, fuzz_by_mutation

SECONDS = 5
SEED = 20


@pytest.mark.parametrize("target", [fuzz_frames.TARGET, fuzz_recovery.TARGET], ids=lambda target: target.name)
def test_no_finding(target: Target) -> None:
    assert fuzz_by_mutation(target, SECONDS, SEED).endswith("no finding")


def test_no_finding_in_records(capsys: pytest.CaptureFixture[str]) -> None:
    fuzz_records.by_mutation(SECONDS, SEED)
    assert capsys.readouterr().out.rstrip().endswith("no finding")


@pytest.mark.parametrize(
    ("run", "data"),
    [
        (fuzz_frames.run_frames, (0, b"\xff\xff\xff\xff")),
        (fuzz_frames.run_frames, (1, b"\0\0\0\0\0\0\0\1x\0\0")),
    ],
)
def test_the_oracle_of_frames_is_not_vacuous(run: Callable[[int, bytes], str], data: tuple[int, bytes]) -> None:
    assert run(*data).split()[0] == "frames"


def test_damage_reaches_the_files() -> None:
    """A flipped bit in the middle of a segment costs the batches behind it, not those before."""
    files = fuzz_recovery.template(0)
    number = sorted(files).index("flights-3/00000000000000000000.log")
    whole = fuzz_recovery.run(bytes([0]))
    damaged = fuzz_recovery.run(bytes([0, number, 8, 0, 4, 0, 0, 0, 0, 1]))
    assert whole != damaged
    assert whole.endswith("appended")
    assert damaged.endswith("appended")
