"""The network between brokers: a process through which all their connections pass, and which can cut some off.

Each broker advertises a port of this process to the others. Bytes from one broker to another that are cut off are held
back, as a network does that loses packets, and go on when the cut is healed. The process at the other end of a
connection is found in /proc, so nothing here knows the protocol. Commands come on standard input, a line each:
``broker ID PID`` (its process has started), ``cut FROM TO``, ``heal FROM TO``; each is answered by a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from bench.attached import attached

__all__ = ["Links", "owner_of"]

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16
READS_OF_A_TABLE = 10


class Links:
    """The process, as the harness drives it."""

    def __init__(self, ports: Mapping[int, tuple[int, int]]) -> None:
        """Listens: ``ports`` has for each broker the port here and the port of its listener for brokers."""
        self._cuts: Counter[tuple[int, int]] = Counter()
        self._process = subprocess.Popen(
            attached([sys.executable, __file__, *(f"{id_}:{here}:{there}" for id_, (here, there) in ports.items())]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )
        self._answer()

    def started(self, broker: int, pid: int) -> None:
        """Tells which process is a broker now."""
        self._command(f"broker {broker} {pid}")

    def cut(self, broker: int, other: int, *, both_ways: bool) -> Callable[[], None]:
        """Holds back what a broker sends to another, and what that one sends to it if ``both_ways``. Returns what ends
        this cut."""
        ends = [(broker, other), (other, broker)] if both_ways else [(broker, other)]
        for source, target in ends:
            self._cuts[source, target] += 1
            self._command(f"cut {source} {target}")
        return partial(self._heal, ends)

    def _heal(self, ends: Iterable[tuple[int, int]]) -> None:
        for source, target in ends:
            self._cuts[source, target] -= 1
            if not self._cuts[source, target]:
                self._command(f"heal {source} {target}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _command(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise OSError("the process between the brokers has ended")


class _Network:
    """The same within the process."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], asyncio.Event] = defaultdict(asyncio.Event)
        self._pids: dict[int, int] = {}

    async def serve(self, ports: Iterable[tuple[int, int, int]]) -> None:
        for broker, here, there in ports:

            async def accept(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, broker: int = broker, there: int = there
            ) -> None:
                await self._connect(reader, writer, broker, there)

            await asyncio.start_server(accept, HOST, here)
        say("listens")
        commands = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        while line := await commands.readline():
            what, *numbers = line.decode().split()
            first, second = map(int, numbers)
            if what == "broker":
                self._pids[first] = second
            elif what == "cut":
                self._link(first, second).clear()
            else:
                self._link(first, second).set()
            say(what)

    def _link(self, source: int, target: int) -> asyncio.Event:
        if (source, target) not in self._open:
            self._open[source, target].set()
        return self._open[source, target]

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, broker: int, there: int
    ) -> None:
        port, here = (writer.get_extra_info(end)[1] for end in ("peername", "sockname"))
        other = owner_of(port, here, self._pids)
        try:
            if other is not None:  # a connection needs both directions
                await self._link(other, broker).wait()
                await self._link(broker, other).wait()
            far_reader, far_writer = await asyncio.open_connection(HOST, there)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            self._pass(reader, far_writer, other, broker), self._pass(far_reader, writer, broker, other)
        )

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int | None, target: int | None
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if source is not None and target is not None:
                    await self._link(source, target).wait()
                writer.write(data)
                await writer.drain()
        writer.close()


def owner_of(port: int, to: int, pids: Mapping[int, int]) -> int | None:
    """Returns the broker whose process has a connection from this local port to that one.

    Connections to other ports may have the same local port, also such that have ended and belong to nobody. The kernel
    tells its table in pieces, and may skip a connection while others come and go: so it is read again.
    """
    row = re.compile(rf"^ *\d+: 0100007F:{port:04X} 0100007F:{to:04X} \S+ \S+ \S+ \S+ +\d+ +\d+ (\d+)", re.M)
    found = next(filter(None, (row.search(Path("/proc/net/tcp").read_text()) for _ in range(READS_OF_A_TABLE))), None)
    if found is None:
        return None
    wanted = f"socket:[{found[1]}]"
    for broker, pid in pids.items():
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}") == wanted:
                        return broker
    return None


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    ports = [tuple(map(int, argument.split(":"))) for argument in sys.argv[1:]]
    asyncio.run(_Network().serve(ports))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
