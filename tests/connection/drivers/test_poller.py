"""The clients and the broker where Linux's own calls are missing, as on macOS."""

import os
import subprocess
import sys
from pathlib import Path

import barnabas

WITHOUT_LINUX = """
import asyncio, ctypes, os, select, selectors, socket, sys

class kevent:
    def __init__(self, ident, filter, flags):
        self.ident, self.filter, self.flags = ident, filter, flags

class kqueue:
    '''A kqueue with the calls of the system that this test runs on.'''
    made = 0

    def __init__(self, _epoll=select.epoll):
        kqueue.made += 1
        self._epoll, self._masks = _epoll(), {}

    def control(self, changes, max_events, timeout=None):
        for change in changes or ():
            before = self._masks.get(change.ident, 0)
            after = before | -change.filter if change.flags == select.KQ_EV_ADD else before & ~-change.filter
            self._masks[change.ident] = after
            call = self._epoll.modify if before and after else self._epoll.register if after else None
            call(change.ident, after) if call else self._epoll.unregister(change.ident)
        if not max_events:
            return []
        found = self._epoll.poll(-1 if timeout is None else timeout, max_events)
        return [kevent(fd, -mask, 0) for fd, ready in found for mask in (1, 4) if ready & (mask | 24) and
            self._masks.get(fd, 0) & mask]

    def close(self):
        self._epoll.close()

select.kevent, select.kqueue = kevent, kqueue
select.KQ_FILTER_READ, select.KQ_FILTER_WRITE, select.KQ_EV_ADD, select.KQ_EV_DELETE = -1, -4, 1, 2
del select.epoll
del os.fdatasync, os.RWF_NOWAIT
for name in ("accept4", "posix_fallocate", "posix_fadvise", "pipe2", "eventfd", "sched_getaffinity", "pidfd_open"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("TCP_QUICKACK", "SO_INCOMING_CPU", "SOCK_CLOEXEC", "SOCK_NONBLOCK"):
    if hasattr(socket, name):
        delattr(socket, name)
sys.platform = "darwin"
"""
PROGRAM = """
import barnabas, barnabas.aio
from barnabas.testing import Broker

with Broker() as broker:
    broker.create_topic("t", partitions=2)
    servers = broker.bootstrap_servers
    with barnabas.Producer(bootstrap_servers=servers) as producer:
        for number in range(1000):
            producer.send("t", b"%d" % number, key=b"%d" % number)
        producer.send("t", b"x" * 900_000)
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    found = []
    with barnabas.Consumer("t", settings, group_id="g") as consumer:
        while len(found) < 1001:
            found += consumer.poll(10)
    with barnabas.Admin(bootstrap_servers=servers) as admin:
        assert sum(lag.offset for lag in admin.list_group_offsets("g").values()) == 1001

    async def main():
        async with barnabas.aio.Consumer("t", settings, group_id="h") as consumer:
            count = 0
            async for _ in consumer:
                count += 1
                if count == 1001:
                    return

    asyncio.run(main())
    broker.restart()
    assert len(broker.records("t")) == 1001
assert kqueue.made >= 3, "the clients have polled something else"
print("done")
"""


def test_clients_and_broker_without_linux() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(barnabas.__file__).parents[1])}
    command = [sys.executable, "-c", WITHOUT_LINUX + PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]
