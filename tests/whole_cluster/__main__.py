"""Runs simulated clusters, one for each seed: `python -m whole_cluster --seeds 10000`."""

import argparse
import sys
import time
import traceback

from whole_cluster.simulation import DEFAULT, DISKS, DURABLE, ZOOKEEPER, simulate

PROGRESS_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m whole_cluster", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="the number of simulations")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--durable", action="store_true", help="durability=fsync, and power losses of all brokers")
    parser.add_argument("--zookeeper", action="store_true", help="a registry in ZooKeeper, and faults of it")
    parser.add_argument("--disks", action="store_true", help="data directories that vanish, come back and are old")
    parser.add_argument("--digests", action="store_true", help="print the hash of each trace")
    parser.add_argument("--trace", action="store_true", help="print the whole trace of each simulation")
    arguments = parser.parse_args()
    chosen = ((arguments.durable, DURABLE), (arguments.zookeeper, ZOOKEEPER), (arguments.disks, DISKS))
    options = next((options for is_chosen, options in chosen if is_chosen), DEFAULT)
    clock = time.perf_counter  # the simulation has its own time
    began = told = clock()
    failed: list[int] = []
    for number, seed in enumerate(range(arguments.first, arguments.first + arguments.seeds), 1):
        try:
            outcome = simulate(seed, options, print if arguments.trace else None)
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed} fails: {error!r}", flush=True)
            if arguments.seeds == 1:
                traceback.print_exc()
        else:
            if arguments.digests:
                print(seed, outcome.digest)
        if clock() - told > PROGRESS_S:
            told = clock()
            print(f"{number} of {arguments.seeds} simulations in {told - began:.0f} s, {len(failed)} fail", flush=True)
    if not arguments.digests:
        print(f"{arguments.seeds} simulations in {clock() - began:.0f} s, failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
