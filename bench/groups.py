"""A consumer group of many members on one thread: raw connections of the classic protocol, without the cost of a
client."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from bench import wire
from bench.brokers import HOST, BrokerFailed, BrokerProcess
from bench.loads import Figures

SUBSCRIPTION = struct.pack(">hi", 0, 1) + wire.string("growth") + struct.pack(">i", -1)
ASSIGNMENT = struct.pack(">hii", 0, 0, -1)
SESSION_MS, REBALANCE_MS = 45_000, 60_000
HEARTBEAT_S = 1.0  # while a group settles; a client's default is 3 s
CLIENT_HEARTBEAT_S = 3.0
SETTLE_TIMEOUT_S = 300.0
ERROR_UNKNOWN_MEMBER_ID, ERROR_ILLEGAL_GENERATION, ERROR_REBALANCE_IN_PROGRESS = 25, 22, 27


@dataclass(slots=True, eq=False)
class Member:
    """One member: its connection, its state in the protocol, and its outstanding request."""

    group: str
    connection: socket.socket
    member_id: str = ""
    generation: int = -1
    size: int = 0  # members in the leader's response; 0 at followers
    stable: bool = False
    awaiting: int = -1  # API key of the outstanding request, -1 when none
    heartbeat_at: float = 0.0
    received: bytearray = field(default_factory=bytearray)

    def send(self, api_key: int, version: int, body: bytes) -> None:
        assert self.awaiting == -1, "one request at a time"
        self.awaiting = api_key
        self.connection.sendall(wire.frame(api_key, version, 1, body))

    def join(self) -> None:
        self.stable, self.size = False, 0
        body = wire.string(self.group) + struct.pack(">ii", SESSION_MS, REBALANCE_MS) + wire.string(self.member_id)
        body += wire.string("consumer") + struct.pack(">i", 1) + wire.string("range") + wire.data_bytes(SUBSCRIPTION)
        self.send(wire.JOIN_GROUP, 3, body)

    def heartbeat(self, every_s: float) -> None:
        self.heartbeat_at = time.monotonic() + every_s
        self.send(wire.HEARTBEAT, 1, self._identity())

    def leave(self) -> None:
        self.send(wire.LEAVE_GROUP, 1, wire.string(self.group) + wire.string(self.member_id))

    def answered(self, body: memoryview) -> None:
        """Handles the response to the outstanding request and sends the next one, as a client does."""
        api_key, self.awaiting = self.awaiting, -1
        reader = wire.Reader(body, 4)  # after the throttle time
        error = reader.int16()
        if error in (ERROR_REBALANCE_IN_PROGRESS, ERROR_ILLEGAL_GENERATION):
            self.join()
        elif error == ERROR_UNKNOWN_MEMBER_ID:
            self.member_id = ""
            self.join()
        elif error:
            raise BrokerFailed(f"group member got error {error} from API {api_key}")
        elif api_key == wire.JOIN_GROUP:
            self._joined(reader)
        elif api_key == wire.SYNC_GROUP:
            self.stable = True
            self.heartbeat_at = time.monotonic() + HEARTBEAT_S

    def _joined(self, reader: wire.Reader) -> None:
        self.generation = reader.int32()
        reader.string()  # protocol
        leader, self.member_id = reader.string(), reader.string()
        assignments = b""
        if leader == self.member_id:
            self.size = reader.int32()
            for _ in range(self.size):
                assignments += wire.string(reader.string()) + wire.data_bytes(ASSIGNMENT)
                reader.data_bytes()
        self.send(wire.SYNC_GROUP, 1, self._identity() + struct.pack(">i", self.size) + assignments)

    def _identity(self) -> bytes:
        return wire.string(self.group) + struct.pack(">i", self.generation) + wire.string(self.member_id)


class Group:
    """All members and the loop that serves them."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        self._broker = broker
        self._name = name
        self._selector = selectors.DefaultSelector()
        _find_coordinator(broker, name)
        self.members: list[Member] = []

    def grow(self, count: int) -> float:
        """Adds members at once; seconds until the whole group is stable in one generation."""
        began = time.perf_counter()
        for _ in range(count):
            connection = socket.create_connection((HOST, self._broker.port), 30)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            member = Member(self._name, connection)
            self._selector.register(connection, selectors.EVENT_READ, member)
            self.members.append(member)
            member.join()
        self._settle()
        return time.perf_counter() - began

    def lose_one(self) -> float:
        """One member leaves; seconds until the others are stable in one generation."""
        leaving = next(member for member in self.members if not member.size or len(self.members) == 1)
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while leaving.awaiting != -1:
            self._step(HEARTBEAT_S, deadline)
        began = time.perf_counter()
        leaving.leave()
        while leaving.awaiting != -1:
            self._step(HEARTBEAT_S, deadline)
        self.members.remove(leaving)
        self._selector.unregister(leaving.connection)
        leaving.connection.close()
        if self.members:
            self._settle()
        return time.perf_counter() - began

    def beat_for(self, seconds: float) -> None:
        """Heartbeats as often as clients send them by default."""
        now = time.monotonic()
        for index, member in enumerate(self.members):
            member.heartbeat_at = now + CLIENT_HEARTBEAT_S * index / len(self.members)
        deadline = now + seconds
        while time.monotonic() < deadline:
            self._step(CLIENT_HEARTBEAT_S, deadline + 1)

    def close(self) -> None:
        for member in self.members:
            member.connection.close()
        self._selector.close()

    def _settle(self) -> None:
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while not self._settled():
            self._step(HEARTBEAT_S, deadline)

    def _settled(self) -> bool:
        generations = {member.generation for member in self.members}
        leaders = [member for member in self.members if member.size]
        whole = len(leaders) == 1 and leaders[0].size == len(self.members)
        return len(generations) == 1 and whole and all(member.stable for member in self.members)

    def _step(self, heartbeat_s: float, deadline: float) -> None:
        now = time.monotonic()
        if now > deadline:
            raise BrokerFailed(f"a group of {len(self.members)} did not settle in {SETTLE_TIMEOUT_S:.0f} s")
        for member in self.members:
            if member.stable and member.awaiting == -1 and now >= member.heartbeat_at:
                member.heartbeat(heartbeat_s)
        for key, _ in self._selector.select(0.05):
            self._receive(key.data)

    def _receive(self, member: Member) -> None:
        data = member.connection.recv(1 << 18)
        if not data:
            raise BrokerFailed("the broker closed a group member's connection")
        member.received += data
        while len(member.received) >= 4:
            size = int.from_bytes(member.received[:4], "big")
            if len(member.received) < 4 + size:
                return
            body = memoryview(bytes(member.received[8 : 4 + size]))
            del member.received[: 4 + size]
            member.answered(body)


def _find_coordinator(broker: BrokerProcess, group: str) -> None:
    """Makes the broker create and load its offsets topic; returns once it coordinates ``group``."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group, "log_level": 0})
    try:
        consumer.committed([TopicPartition("growth", 0)], timeout=60)
    finally:
        consumer.close()


def measure(broker: BrokerProcess, members: int, beat_s: float = 6.0) -> Figures:
    """Measures a group of ``members`` that join at once, the leaving of one, and the cost of the heartbeats."""
    memory_before = broker.memory_mb()
    group = Group(broker, f"growth-{members}")
    try:
        join_s = group.grow(members)
        memory_mb = broker.memory_mb() - memory_before
        cpu_before = broker.cpu_s()
        group.beat_for(beat_s)
        cpu_percent = 100 * (broker.cpu_s() - cpu_before) / beat_s
        figures = {"join_s": join_s, "memory_MB": memory_mb, "heartbeat_cpu_percent": cpu_percent}
        if members > 1:
            figures["rebalance_s"] = group.lose_one()
        return figures
    finally:
        group.close()
