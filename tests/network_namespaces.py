"""Machines of a test, each in a network namespace of its own, with links that can be cut and made bad."""

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

import bad_link
from bench.attached import attached

__all__ = ["Network", "on_router"]

T = TypeVar("T")
_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET"""
_MAKE_TUN, _TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
"""TUNSETIFF, and IFF_TUN | IFF_NO_PI"""


class Network:
    """Machines around a router, by number from 1 to 200. The test's thread is on the router and reaches all of them; so
    are the threads and the processes that it starts."""

    def __init__(self) -> None:
        """Takes the calling thread into the namespace of the router. Raises OSError where that is not permitted."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._rules = count(10_000)
        self._bad_links = count(1000)  # the numbers of routing tables, too
        self._faults: list[Callable[[], None]] = []
        self._router = self._new_namespace()
        self._machines: dict[int, int] = {}
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        Path("/proc/sys/net/ipv4/conf/all/rp_filter").write_text("0")  # the packets of a bad link come from elsewhere
        Path("/proc/sys/net/ipv4/conf/default/rp_filter").write_text("0")
        self._run("ip", "link", "set", "lo", "up")

    def _new_namespace(self) -> int:
        """Takes the calling thread into a new namespace. Returns its descriptor."""
        if self._libc.unshare(_NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    def add(self, number: int) -> None:
        """Connects a machine to the router."""
        made: list[int] = []
        thread = threading.Thread(target=lambda: made.append(self._new_namespace()))  # which stays there
        thread.start()
        thread.join()
        self._machines[number] = made[0]
        here, there = f"to{number}", "router"
        self._run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", self._path(made[0]))
        self._run("ip", "address", "add", f"10.77.{number}.1/24", "dev", here)
        self._run("ip", "link", "set", here, "up")
        on_machine = self.command(number)
        self._run(*on_machine, "ip", "link", "set", "lo", "up")
        self._run(*on_machine, "ip", "address", "add", f"{self.host(number)}/24", "dev", there)
        self._run(*on_machine, "ip", "link", "set", there, "up")
        self._run(*on_machine, "ip", "route", "add", "default", "via", f"10.77.{number}.1")

    @staticmethod
    def host(number: int) -> str:
        return f"10.77.{number}.2"

    def command(self, number: int) -> list[str]:
        """Returns what a command begins with that is to run on a machine."""
        return ["nsenter", f"--net={self._path(self._machines[number])}"]

    def cut(self, source: int, target: int, *, one_way: bool = False) -> Callable[[], None]:
        """Drops the packets between two machines, or from `source` to `target` only. Returns what ends this cut."""
        ends = [(source, target)] if one_way else [(source, target), (target, source)]
        return self._fault(self._rule(*each, "blackhole") for each in ends)

    def worsen(
        self,
        source: int,
        target: int,
        *,
        delay_s: tuple[float, float],
        loss: float,
        seed: str,
        one_way: bool = False,
        largest_bytes: int = 1 << 16,
    ) -> Callable[[], None]:
        """Delays each packet between two machines by a random time, and loses this share of them, and all that are
        larger than ``largest_bytes``, without telling the sender. Returns what ends it; packets that are held up
        then are lost."""
        number = next(self._bad_links)
        name, table = f"bad{number}", f"{number}"
        device = os.open("/dev/net/tun", os.O_RDWR)
        try:
            fcntl.ioctl(device, _MAKE_TUN, struct.pack("16sH", name.encode(), _TUN_WITHOUT_HEADER))
            self._run("ip", "link", "set", name, "up")
            self._run("ip", "route", "add", "default", "dev", name, "table", table)
            command = [sys.executable, bad_link.__file__, *map(str, delay_s), str(loss), seed, str(largest_bytes)]
            process = subprocess.Popen(attached(command), stdin=device)
        finally:
            os.close(device)
        ends = [(source, target)] if one_way else [(source, target), (target, source)]
        # What comes back out of the device is no longer from the link of its sender, and goes on; or meets a cut.
        rules = [self._rule(*each, "iif", f"to{each[0]}", "lookup", table, first=True) for each in ends]

        def end_process() -> None:
            process.kill()
            process.wait()

        return self._fault([*rules, end_process])

    def _rule(self, source: int, target: int, *what: str, first: bool = False) -> Callable[[], None]:
        """Adds a rule for packets. Returns what deletes it."""
        priority = next(self._rules) - (5_000 if first else 0)
        rule = ["from", self.host(source), "to", self.host(target), "priority", f"{priority}", *what]
        self._run("ip", "rule", "add", *rule)
        return partial(self._run, "ip", "rule", "delete", *rule)

    def _fault(self, ends: Iterable[Callable[[], None]]) -> Callable[[], None]:
        """Returns what ends a fault once, `heal` included."""
        left = list(ends)

        def end() -> None:
            while left:
                left.pop()()

        self._faults.append(end)
        return end

    def heal(self) -> None:
        """Ends all cuts, and makes all links good."""
        while self._faults:
            self._faults.pop()()

    def close(self) -> None:
        self.heal()
        for descriptor in (self._router, *self._machines.values()):
            os.close(descriptor)

    @staticmethod
    def _path(descriptor: int) -> str:
        return f"/proc/{os.getpid()}/fd/{descriptor}"

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=60)


@contextmanager
def _network() -> Iterator[Network]:
    """A network, whose router the calling thread is on. Skips the test where it cannot be made."""
    for tool in ("ip", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            pytest.skip(f"network namespaces need `{tool}`")
    try:
        made = Network()
    except PermissionError:
        pytest.skip("network namespaces are not permitted here")
    try:
        yield made
    finally:
        made.close()


def on_router(test: Callable[[Network], T]) -> T:
    """Runs a test in a thread on the router of a network; the calling thread stays where it is."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with _network() as made:
                results.append(test(made))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="router")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
