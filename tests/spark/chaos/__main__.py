"""Random cases from a seed: `python tests/spark/chaos --rounds 20 --seed 7`; with `--matrix` every place and kind."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sink_cases import IN_COMMIT, KINDS, Case, play


def chosen(arguments: argparse.Namespace) -> Iterator[Case]:
    if arguments.matrix:
        for point, kinds in KINDS.items():
            for kind in kinds:
                yield Case(point, kind)
                if kind == "jvm" and (point in IN_COMMIT or point == "written"):
                    yield Case(point, kind, tasks=2, tasks_after=3)
        yield Case("written", "jvm", mode="none")
        return
    rng = random.Random(arguments.seed)
    for _ in range(arguments.rounds):
        yield Case.any_of(rng)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--matrix", action="store_true")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    failed = 0
    for number, case in enumerate(chosen(arguments)):
        with tempfile.TemporaryDirectory(prefix="sinkchaos-") as directory:
            report = play(case, Path(directory))
        as_wanted = report.is_exact if case.mode == "two-phase" else not report.is_exact
        failed += not as_wanted
        print(
            f"{number} {'ok' if as_wanted else 'FAILED'} {case} fired={report.fired} runs={report.runs}"
            f" finished={report.finished} doubled={report.doubled} missing={report.missing} open={report.left_open}"
            f"{'' if as_wanted else ' ' + report.told[-1500:]}",
            flush=True,
        )
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
