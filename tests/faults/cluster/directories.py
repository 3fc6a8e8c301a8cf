"""What operators and machines do to the directories of a cluster: mounts that are missing, copies put back or started.

All of it happens while the brokers that it hits are down; `Executor` stops and starts them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from barnabas.testing.ports import ReservedPort
from bench.attached import attached
from cluster.brokers import HOST, PEERS, BrokersFailed, ClusterProcesses

__all__ = ["CopiedCluster", "Registry", "Stock", "unmount"]

RECOVERED_TIMEOUT_S = 120.0
NEWER, UNDERNEATH = ".newer", ".mount"


def unmount(directories: Iterable[Path]) -> Callable[[], None]:
    """Leaves empty directories in the place of these. Returns what mounts them again; whatever was written into the
    empty ones meanwhile lies under the mount then, and is not seen any more."""
    taken = list(directories)
    for each in taken:
        each.rename(_beside(each, UNDERNEATH))
        each.mkdir()

    def mount() -> None:
        for each in taken:
            shutil.rmtree(each)
            _beside(each, UNDERNEATH).rename(each)

    return mount


class Stock:
    """A copy of some directories, made for the day on which it is needed."""

    def __init__(self, directories: Iterable[Path], place: Path) -> None:
        self._copies = {each: place / each.name for each in directories}
        place.mkdir(parents=True)
        for each, copy in self._copies.items():
            copy_tree(each, copy)

    def put_back(self, *, in_place: bool) -> None:
        """The copies take the place of the directories, for good: as directories that are moved there, or as files that
        are copied into those that are there."""
        for each, copy in self._copies.items():
            if in_place:
                for entry in each.iterdir():
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
                subprocess.run(["cp", "-a", f"{copy}/.", str(each)], check=True)
            else:
                shutil.rmtree(each)
                copy.rename(each)

    def put_back_for_a_while(self) -> Callable[[], None]:
        """The copies take the place of the directories, which are kept. Returns what brings those back."""
        for each, copy in self._copies.items():
            each.rename(_beside(each, NEWER))
            copy.rename(each)

        def end() -> None:
            for each in self._copies:
                shutil.rmtree(each)
                _beside(each, NEWER).rename(each)

        return end


class Registry:
    """A copy of the registry's file, taken while no broker runs."""

    def __init__(self, brokers: ClusterProcesses, place: Path) -> None:
        self._brokers, self._place = brokers, place
        place.mkdir(parents=True)
        for each in brokers.registry_files():
            shutil.copy2(each, place / each.name)

    def put_back(self) -> None:
        """It takes the place of the newer one, which is gone."""
        self._remove()
        for each in self._place.iterdir():
            shutil.copy2(each, self._brokers.root / each.name)

    def recover(self) -> None:
        """Makes the registry anew as a refused start tells it. Raises BrokersFailed."""
        self._remove()
        command = [sys.executable, "-m", "barnabas", "cluster", "recover"]
        command += ["--registry", str(self._brokers.registry)]
        for broker in self._brokers.ids:
            for each in self._brokers.data_dirs(broker):
                command += ["--data-dir", str(each)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RECOVERED_TIMEOUT_S, check=False)
        if done.returncode:
            raise BrokersFailed(f"cluster recover ended with {done.returncode}: {done.stdout}{done.stderr}"[-800:])

    def _remove(self) -> None:
        for each in self._brokers.registry_files():
            each.unlink()


class CopiedCluster:
    """A copy of everything, taken while the cluster runs, of which some brokers are started beside it."""

    def __init__(self, brokers: ClusterProcesses, place: Path, started: Iterable[int]) -> None:
        """What becomes of the copy is nobody's business: only that the original notices nothing of it."""
        self._place = place
        place.mkdir(parents=True)
        for each in brokers.registry_files():
            copy_tree(each, place / each.name)
        for broker in brokers.ids:
            for each in brokers.data_dirs(broker):
                copy_tree(each, place / each.name)
        self._ports: list[ReservedPort] = []
        self._processes = []
        for broker in started:
            clients, peers = ReservedPort(), ReservedPort()
            self._ports += [clients, peers]
            listeners = {"listeners": f"PLAINTEXT://{HOST}:{clients.number}"}
            if brokers.links is not None:
                listeners |= {
                    "listeners": f"{listeners['listeners']},{PEERS}://{HOST}:{peers.number}",
                    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{PEERS}:SASL_PLAINTEXT",
                    "inter.broker.listener.name": PEERS,
                }
            command = brokers.command(broker, place, place / brokers.registry.name, listeners)
            with (place / f"broker-{broker}.log").open("ab") as out:
                self._processes.append(
                    subprocess.Popen(
                        attached(command), cwd=place, env=brokers.environment(), stdout=out, stderr=subprocess.STDOUT
                    )
                )

    def end(self) -> None:
        """Kills the brokers of the copy, and removes it, unless that is done."""
        while self._processes:
            process = self._processes.pop()
            process.kill()
            process.wait()
        while self._ports:
            self._ports.pop().release()
        shutil.rmtree(self._place, ignore_errors=True)


def copy_tree(source: Path, target: Path) -> None:
    """As `cp -a` does it. Files that a broker removes meanwhile are missing in the copy."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=False, capture_output=True)


def _beside(directory: Path, suffix: str) -> Path:
    return directory.with_name(directory.name + suffix)
