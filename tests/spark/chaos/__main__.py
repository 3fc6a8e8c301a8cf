"""Queries are killed, and every row must come out once.

python -m tests.spark.chaos --matrix              every place and kind, then the controls
python -m tests.spark.chaos --rounds 300 --seed 7 kills at random times
python -m tests.spark.chaos --source --rounds 60  the same for the source, while its topics change
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .sink_cases import Case, Stage, controls, matrix
from .sink_processes import Hosts, archive_classes, served
from .sink_rounds import Life, lives
from .source_rounds import SourceLife, source_lives

Job = Callable[[], bool]


class Progress:
    """Lines of several lanes, with how long it will still take."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._lock = threading.Lock()
        self.failed = 0

    def say(self, text: str, *, ok: bool, took_s: float) -> None:
        with self._lock:
            self._done += 1
            self.failed += not ok
            left_s = (time.monotonic() - self._began) / self._done * (self._total - self._done)
            place = f"{self._done}/{self._total}"
            print(f"{place} {'ok' if ok else 'FAILED'} {text} ({took_s:.1f} s, {left_s / 60:.0f} min left)", flush=True)

    def note(self, text: str) -> None:
        with self._lock:
            print(text, flush=True)


def play_matrix(arguments: argparse.Namespace, directory: Path) -> int:
    cases = [case for case in (*matrix(), *controls()) if not arguments.only or arguments.only in str(case)]
    jobs: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in cases:
        jobs.put(case)
    progress = Progress(len(cases))
    java = archive_classes(directory)

    def lane(number: int) -> None:
        home = directory / f"lane-{number}"
        home.mkdir()
        hosts = Hosts(home, java=java)
        try:
            with served(home) as broker:
                stage = Stage(home, broker, hosts)
                while True:
                    try:
                        case = jobs.get_nowait()
                    except queue.Empty:
                        return
                    pause_for(arguments.pause_file)
                    began = time.monotonic()
                    try:
                        report = stage.play(case)
                    except TimeoutError as error:
                        progress.say(f"{case}: {error}", ok=False, took_s=time.monotonic() - began)
                        hosts.close()
                        hosts = stage.hosts = Hosts(home, java=java)
                        continue
                    ok = report.is_as_it_must_be
                    said = "" if ok else f"\n{report.told[-3000:]}"
                    progress.say(f"{case}: {report}{said}", ok=ok, took_s=time.monotonic() - began)
        finally:
            hosts.close()

    in_lanes(arguments.lanes, lane)
    print(f"{progress.failed} of {len(cases)} cases failed; those without transactions must double rows")
    return progress.failed > 0


def play_rounds(arguments: argparse.Namespace, directory: Path) -> int:
    print(f"seed {arguments.seed}, {arguments.rounds} rounds", flush=True)
    wanted = [
        life
        for life in lives(arguments.seed, arguments.rounds, arguments.mode)
        if arguments.life is None or life.number == arguments.life
    ]
    progress = Progress(sum(life.rounds for life in wanted))
    jobs: queue.SimpleQueue[Life] = queue.SimpleQueue()
    for life in wanted:
        jobs.put(life)
    failed: list[int] = []
    java = archive_classes(directory)

    def lane(number: int) -> None:
        home = directory / f"lane-{number}"
        home.mkdir()
        hosts = Hosts(home, java=java)
        try:
            while True:
                try:
                    life = jobs.get_nowait()
                except queue.Empty:
                    return
                trouble = life.live(
                    directory / f"life-{life.number}", hosts, progress.say, lambda: pause_for(arguments.pause_file)
                )
                if trouble:
                    failed.append(life.number)
                    progress.note(f"life {life.number} FAILED: {trouble}\n  again: {life.again}")
                    hosts.close()
                    hosts = Hosts(home, java=java)
        finally:
            hosts.close()

    in_lanes(arguments.lanes, lane)
    print(f"seed {arguments.seed}: {len(failed)} of {len(wanted)} lives failed {sorted(failed) or ''}")
    return len(failed) > 0


def play_source(arguments: argparse.Namespace, directory: Path) -> int:
    print(f"source, seed {arguments.seed}, {arguments.rounds} rounds", flush=True)
    failed: list[int] = []
    jobs: queue.SimpleQueue[SourceLife] = queue.SimpleQueue()
    for life in source_lives(arguments.seed, arguments.rounds):
        if arguments.life is None or life.number == arguments.life:
            jobs.put(life)

    def lane(number: int) -> None:
        home = directory / f"lane-{number}"
        home.mkdir()
        hosts = Hosts(home)
        try:
            while True:
                life = jobs.get_nowait()
                pause_for(arguments.pause_file)
                trouble = life.live(directory / f"life-{life.number}", hosts, lambda text: print(text, flush=True))
                if trouble:
                    failed.append(life.number)
                    print(f"life {life.number} FAILED: {trouble}", flush=True)
        except queue.Empty:
            return
        finally:
            hosts.close()

    in_lanes(arguments.lanes, lane)
    print(f"source, seed {arguments.seed}: {len(failed)} lives failed {sorted(failed) or ''}")
    return len(failed) > 0


def in_lanes(count: int, lane: Callable[[int], None]) -> None:
    """All lanes to their ends; raises what one of them raised."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            lane(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def pause_for(path: Path | None) -> None:
    """A measurement may want the machine for itself."""
    while path is not None and path.exists():
        time.sleep(0.5)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--source", action="store_true", help="rounds for the source, with topics that change")
    parser.add_argument("--only", default="", help="cases of the matrix whose names have this")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--life", type=int, help="only this one of the rounds' lives")
    parser.add_argument("--mode", default="two-phase", choices=["two-phase", "none"], help="none: a control")
    parser.add_argument("--lanes", type=int, default=2, help="so many at once")
    parser.add_argument("--pause-file", type=Path, help="nothing new is begun while this file is there")
    parser.add_argument("--keep", type=Path, help="where logs and checkpoints stay")
    arguments = parser.parse_args(words)
    play = play_matrix if arguments.matrix else play_source if arguments.source else play_rounds
    if arguments.keep:
        arguments.keep.mkdir(parents=True)
        return play(arguments, arguments.keep)
    with tempfile.TemporaryDirectory(prefix="sinkchaos-", ignore_cleanup_errors=True) as directory:
        return play(arguments, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
