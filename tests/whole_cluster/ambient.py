"""Replaces what a program takes from its surroundings, time and randomness above all, by that of a simulated world."""

import contextlib
import functools
import gc
import hashlib
import logging
import os
import random
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from barnabas.broker import controller_thread, loop_watchdog, server
from barnabas.broker.cluster import member
from barnabas.connection.drivers import aio
from barnabas.log import log_manager
from barnabas.network import acceptor, connection
from barnabas.registry import processes
from whole_cluster.network import FileSending, Network, SimulatedSockets
from whole_cluster.world import World

__all__ = ["no_collections", "surroundings"]

_pbkdf2_hmac = functools.lru_cache(1000)(hashlib.pbkdf2_hmac)


class _Threads:
    """In place of the module `threading`: calls in a simulated executor are seen in a thread of their own."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def get_ident(self) -> int:
        return 2 if self._world.in_thread else 1

    def Thread(self, **_: Any) -> mock.Mock:
        """A watchdog has nothing to see: a simulated loop stands still with its process."""
        return mock.Mock()


class _Log(logging.Handler):
    """Writes the log of brokers and clients into the trace."""

    def __init__(self, world: World, directory: Path) -> None:
        super().__init__()
        self._world = world
        self._directory = directory

    def emit(self, record: logging.LogRecord) -> None:
        host = self._world.host
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" {record.exc_info[1]!r}"
        self._world.note(f"{host.name if host else '-'}: {text.replace(str(self._directory), '')}")


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """The context in which no garbage is collected: the end of an object may run code, and must come at the same step
    in each run. At the end that of the simulation is collected. It is all young, so nothing else is looked at."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def surroundings(world: World, network: Network, directory: Path, level: int) -> Iterator[None]:
    """The context in which time, randomness, threads, sockets and processes are those of the world."""
    rng = random.Random(world.random.random())

    class Seeded(random.Random):
        def __init__(self, seed: Any = None) -> None:
            super().__init__(rng.random() if seed is None else seed)

    def monotonic() -> float:
        host = world.host
        return world.now if host is None else world.now + host.skew_s

    def wall() -> float:
        return 1_700_000_000 + monotonic()

    own = processes._Process("boot", "pid:[1]", 1, "1", 0)
    log = logging.getLogger("barnabas")
    before, propagates = log.level, log.propagate
    handler = _Log(world, directory)
    state = random.getstate()
    random.seed(rng.random())
    with contextlib.ExitStack() as stack:
        for target, name, new in (
            (time, "monotonic", monotonic),
            (time, "time", wall),
            (time, "time_ns", lambda: int(wall() * 1e9)),
            (os, "urandom", rng.randbytes),
            (random, "_urandom", rng.randbytes),
            (random, "Random", Seeded),
            (hashlib, "pbkdf2_hmac", _pbkdf2_hmac),
            (controller_thread, "threading", _Threads(world)),
            (loop_watchdog, "threading", _Threads(world)),
            (acceptor, "socket", SimulatedSockets(network)),
            (aio, "socket", SimulatedSockets(network).socket),
            (connection, "os", FileSending(network)),
            (log_manager, "read_boot_id", lambda: world.host.boot if world.host is not None else ""),
            (server, "_SESSIONS_WAITED", 0),  # nothing else happens in the simulated world while a broker starts
            (server, "tell_who_has_the_node_id", lambda *_: None),  # it would use a real socket
            (member, "place_of", lambda _: "its machine"),  # which has the name of a temporary directory
            (processes, "_own", lambda: own),
            (processes, "_serials", count(1)),
            (processes, "_running", {}),
        ):
            stack.enter_context(mock.patch.object(target, name, new))
        log.addHandler(handler)
        log.setLevel(level)
        log.propagate = False
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.setLevel(before)
            log.propagate = propagates
            random.setstate(state)
