"""One partition with three replicas: real partitions and logs, a model of the controller, and a bad network.

The network loses, delays and doubles messages. One seed decides all that happens, and `check` runs after each event.
"""

import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from barnabas.broker.delayed_produce import DelayedProduce, Uncommitted
from barnabas.config.log_config import LogConfig
from barnabas.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NetworkException,
    OffsetOutOfRange,
)
from barnabas.log.directories.disk import Disk
from barnabas.log.log_loader import LogEnvironment, LogState, Verification, create_log, load_log
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import read_header
from barnabas.replication.partition import Partition
from barnabas.replication.replica import FollowerFetch, FollowerRead, IsrChange
from barnabas.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from hand_clock import HandClock
from replication.rig import validated_batch

__all__ = ["Options", "SimulatedCluster", "batches_of"]

TOPIC_PARTITION = TopicPartition("t", 0)
REPLICAS = (1, 2, 3)
NO_LEADER = -1
LAG_MS = 10_000


class UnsyncedDisk(Disk):
    """A disk whose syncs cost no time. A power loss is simulated by truncating files."""

    @staticmethod
    def fdatasync(fd: int) -> None: ...


@dataclass(frozen=True)
class Options:
    min_insync_replicas: int = 2
    fsync: bool = False
    power_losses: bool = True
    deletions: bool = False
    steps: int = 150


@dataclass(frozen=True)
class Image:
    """The partition and the live brokers with their epochs, as the controller publishes them."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    brokers: dict[int, int]


class Controller:
    """Elects leaders from the ISR and makes the changes of the ISR that leaders propose, each by compare-and-set."""

    def __init__(self) -> None:
        self.epochs = dict(zip(REPLICAS, (1, 2, 3), strict=True))
        """The broker epoch of each broker's last registration."""
        self.live = set(REPLICAS)
        self.images = [Image(1, 0, 0, REPLICAS, dict(self.epochs))]
        self.on_election: Callable[[int], None] = lambda leader: None

    @property
    def now(self) -> Image:
        return self.images[-1]

    def _publish(self, isr: tuple[int, ...], leader: int, *, elect: bool = False) -> None:
        old = self.now
        changed = elect or isr != old.isr
        brokers = {broker: self.epochs[broker] for broker in self.live}
        self.images.append(Image(leader, old.leader_epoch + elect, old.partition_epoch + changed, isr, brokers))
        if elect and leader != NO_LEADER:
            self.on_election(leader)

    def elect(self, random_: random.Random, *, without: int | None = None) -> None:
        """Elects a live member of the ISR, or nobody."""
        candidates = [broker for broker in self.now.isr if broker in self.live and broker != without]
        self._publish(self.now.isr, random_.choice(candidates) if candidates else NO_LEADER, elect=True)

    def fence(self, broker: int, random_: random.Random) -> None:
        """Takes a broker out of the ISR, unless it is the last member, and out of its leadership."""
        self.live.discard(broker)
        isr = tuple(member for member in self.now.isr if member != broker) or self.now.isr
        self._publish(isr, self.now.leader)
        if self.now.leader == broker:
            self.elect(random_)

    def unfence(self, broker: int, random_: random.Random) -> None:
        self.live.add(broker)
        self._publish(self.now.isr, self.now.leader)
        if self.now.leader == NO_LEADER and broker in self.now.isr:
            self.elect(random_)

    def register(self, broker: int, random_: random.Random, *, stays_in_isr: bool) -> None:
        """Notes that a broker has started. It may have lost records, unless it had all of them on its disk."""
        if not stays_in_isr:
            self.fence(broker, random_)
        self.epochs[broker] = max(self.epochs.values()) + 1
        if self.now.leader == broker:
            self.elect(random_)  # a new leader epoch in any case
        self.unfence(broker, random_)

    def alter_partition(self, leader: int, change: IsrChange) -> Image:
        """Makes a change of the ISR, or raises the error that Kafka's controller gives."""
        now = self.now
        if change.leader_epoch < now.leader_epoch:
            raise FencedLeaderEpoch
        if leader != now.leader:
            raise InvalidRequest
        if change.partition_epoch != now.partition_epoch:
            raise InvalidUpdateVersion
        for member in change.new_isr:
            if member.broker_id not in self.live or member.broker_epoch not in (-1, self.epochs[member.broker_id]):
                raise IneligibleReplica
        self._publish(tuple(member.broker_id for member in change.new_isr), now.leader)
        return self.now


@dataclass(eq=False)
class Incarnation:
    """A broker's process: messages to and from it are void when it has ended."""

    broker_id: int
    broker_epoch: int
    log: UnifiedLog
    image: Image
    seen: int
    partition: Partition = field(init=False)
    dirty: bool = False
    """Whether a flush is due (durability=fsync)."""
    produces: list[DelayedProduce[int]] = field(default_factory=list)
    alter_requests: deque[IsrChange] = field(default_factory=deque)


@dataclass(frozen=True)
class Request:
    sender: Incarnation
    leader: int
    fetch: FollowerFetch


@dataclass(frozen=True)
class Response:
    receiver: Incarnation
    leader: Incarnation
    fetch: FollowerFetch
    read: FollowerRead | KafkaError


def batches_of(log: UnifiedLog) -> list[tuple[int, bytes]]:
    """Returns base offset and bytes of each batch of a log with one segment."""
    read = log.read(log.log_start_offset, 1 << 30, upper_bound=log.log_end_offset, min_one_message=True)
    data = b"" if read.file_slice is None else read.file_slice.read()
    found, position = [], 0
    while position < len(data):
        header = read_header(data[position:])
        found.append((int(header.base_offset), data[position : position + header.size_bytes]))
        position += header.size_bytes
    return found


class SimulatedCluster:
    def __init__(self, directory: Path, seed: int, options: Options) -> None:
        self.random = random.Random(seed)
        self.options = options
        self.directory = directory
        self.clock = HandClock()
        self.controller = Controller()
        self.controller.on_election = self._elected
        self.config = LogConfig(min_insync_replicas=options.min_insync_replicas)
        self.environment = LogEnvironment(self.clock, UnsyncedDisk())
        self.trace: list[str] = []
        self.alive: dict[int, Incarnation] = {}
        self.logs: dict[int, UnifiedLog] = {}
        """The log of each broker, also while its process is down."""
        self.requests: list[Request] = []
        self.responses: list[Response] = []
        self.count = 0
        self.acknowledged: dict[int, bytes] = {}
        self.committed: dict[int, bytes] = {}
        """The batches that were below some replica's high watermark, by their base offset."""
        self.high_watermarks: dict[tuple[Incarnation, int], int] = {}
        self._contents: dict[int, tuple[object, dict[int, bytes]]] = {}
        self.deleted = 0
        """The records below have been deleted by a leader, and may be missing."""
        self.lost_tails = 0
        self.durable = dict.fromkeys(REPLICAS, 0)
        """The end of what is on each broker's disk. The log's own recovery point may be lower after a restart."""
        for broker in REPLICAS:
            path = str(directory / f"broker-{broker}")
            log = create_log(path, TOPIC_PARTITION, self.config, self.environment, None)
            self._start(broker, log)

    # --- brokers ----------------------------------------------------------------------------------------------------

    def _start(self, broker: int, log: UnifiedLog) -> None:
        seen = len(self.controller.images) - 1
        process = Incarnation(broker, self.controller.epochs[broker], log, self.controller.now, seen)

        def flush_behind(_: Partition) -> None:
            process.dirty = True

        process.partition = Partition(
            TOPIC_PARTITION, UUID(int=1), log,
            broker_epochs=lambda broker_id: process.image.brokers.get(broker_id),
            replica_lag_time_max_ms=LAG_MS,
            flush_behind=flush_behind if self.options.fsync else None,
        )  # fmt: skip
        self.alive[broker] = process
        self.logs[broker] = log
        self._apply(process, seen)

    def _apply(self, process: Incarnation, version: int) -> None:
        process.seen, process.image = version, self.controller.images[version]
        image = process.image
        process.partition.become(
            broker_id=BrokerId(process.broker_id),
            leader_id=BrokerId(image.leader),
            leader_epoch=LeaderEpoch(image.leader_epoch),
            partition_epoch=image.partition_epoch,
            replicas=[BrokerId(each) for each in REPLICAS],
            in_sync_replicas=[BrokerId(each) for each in image.isr],
        )

    def crash(self, broker: int) -> None:
        self.alive.pop(broker)

    def restart(self, broker: int, *, power_loss: bool) -> None:
        """Starts a process upon what its predecessor left: all of it, or after a power loss what was synced and maybe
        more."""
        log = self.logs[broker]
        end, high_watermark = log.log_end_offset, log.high_watermark
        if power_loss:
            cut = self.random.randint(self.durable[broker], end)
            self.durable[broker] = cut
            self.lost_tails += cut < end
            found = log.active_segment.locate(cut) if cut < end else None
            log.release()
            if found is not None:
                os.truncate(log.active_segment.path(".log"), found[0])
        else:
            log.release()
        verification = Verification.FULL if power_loss else Verification.TAIL
        state = LogState(
            verification,
            trusted_boot=not power_loss,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            high_watermark=self.random.randint(log.log_start_offset, high_watermark),
        )
        self._contents.pop(broker, None)
        reopened = load_log(log.directory, TOPIC_PARTITION, self.config, self.environment, state)
        assert reopened.missing is None
        self.logs[broker] = reopened
        self.controller.register(broker, self.random, stays_in_isr=self.options.fsync and self.random.random() < 0.7)
        self._start(broker, reopened)

    # --- events -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        events: list[tuple[int, Callable[[], None]]] = [
            (20, self.produce),
            (30, self.send_fetch),
            (50, self.deliver_request),
            (50, self.deliver_response),
            (15, self.deliver_image),
            (15, self.deliver_alter_partition),
            (5, self.pass_time),
            (8, self.tick),
            (2, self.crash_one),
            (6, self.restart_one),
            (2, self.fence_one),
            (10, self.unfence_one),
            (2, self.move_leader),
            (3 if self.options.deletions else 0, self.delete_records),
            (8, self.calm),
            (10 if self.options.fsync else 0, self.flush_one),
        ]
        weights = [weight for weight, _ in events]
        for _ in range(self.options.steps):
            event = self.random.choices(events, weights)[0][1]
            before = self._isr_sizes()
            self.trace.append(event.__name__)
            event()
            if event != self.calm:  # which checks each of its steps
                self.check(before)
        self.heal()

    def note(self, text: str) -> None:
        self.trace[-1] += f": {text}"

    def _index_of(self, messages: list[Request] | list[Response]) -> int:
        """Chooses a message: more often the newest than one that is late."""
        return len(messages) - 1 if self.random.random() < 0.6 else self.random.randrange(len(messages))

    def _some(self, items: list[Incarnation]) -> Incarnation | None:
        return self.random.choice(items) if items else None

    def leaders(self) -> list[Incarnation]:
        return [process for process in self.alive.values() if process.partition.is_leader]

    def produce(self) -> None:
        leader = self._some(self.leaders())
        if leader is None:
            return
        self.count += 1
        partition = leader.partition
        try:
            info = partition.append_as_leader(validated_batch(b"%d" % self.count), self.random.choice([-1, -1, 1]))
        except KafkaError as error:
            self.note(type(error).__name__)
            return
        offset = int(info.first_offset)
        data = dict(batches_of(partition.log))[offset]
        self.note(f"{leader.broker_id} at {offset}")
        failed: list[int] = []

        def finished() -> None:
            if not failed:
                self.acknowledged[offset] = data
                self._check_enough_copies(offset, data)

        entry = Uncommitted(partition, info.last_offset, offset)
        leader.produces.append(DelayedProduce([entry], lambda key, error: failed.append(key), finished))

    def _complete(self) -> None:
        for process in self.alive.values():
            process.produces = [wait for wait in process.produces if not wait.try_complete((process.partition,))]

    def send_fetch(self) -> None:
        process = self._some([each for each in self.alive.values() if not each.partition.is_leader])
        if process is not None:
            self._send_fetch(process)

    def _send_fetch(self, process: Incarnation) -> None:
        leader = process.partition.leader_id
        fetch = process.partition.next_fetch()
        if leader != NO_LEADER and fetch is not None:
            self.requests.append(Request(process, leader, fetch))
            del self.requests[:-6]

    def deliver_request(self) -> None:
        if not self.requests:
            return
        index = self._index_of(self.requests)
        # a request that is not taken off the list arrives again, in its last copy after its sender has died
        request = self.requests[index] if self.random.random() < 0.15 else self.requests.pop(index)
        if self.random.random() > 0.1:
            self._answer(request)

    def _answer(self, request: Request) -> None:
        leader = self.alive.get(request.leader)
        if leader is None:
            return
        sender = request.sender
        read: FollowerRead | KafkaError
        try:
            read = leader.partition.fetch_from_follower(
                BrokerId(sender.broker_id), sender.broker_epoch, request.fetch,
                max_bytes=self.random.choice([1, 150, 100_000]), min_one_message=True, now=self.clock.monotonic(),
            )  # fmt: skip
            if read.isr_change is not None:
                leader.alter_requests.append(read.isr_change)
            self.note(f"{sender.broker_id} to {leader.broker_id}, {request.fetch} -> {read.diverging_epoch or ''}")
        except KafkaError as error:
            self.note(f"{sender.broker_id} to {leader.broker_id}, {request.fetch} -> {error!r}")
            read = error
        self.responses.append(Response(sender, leader, request.fetch, read))
        del self.responses[:-6]

    def deliver_response(self) -> None:
        if not self.responses:
            return
        index = self._index_of(self.responses)
        response = self.responses[index] if self.random.random() < 0.15 else self.responses.pop(index)
        if self.random.random() > 0.1:
            self._receive(response)

    def _receive(self, response: Response) -> None:
        follower, fetch, read = response.receiver, response.fetch, response.read
        if self.alive.get(follower.broker_id) is not follower:
            return
        self.note(f"to {follower.broker_id} for {fetch}")
        partition = follower.partition
        if isinstance(read, OffsetOutOfRange):
            leader = response.leader
            still_leads = leader.partition.is_leader and leader.partition.leader_epoch == fetch.leader_epoch
            if still_leads and self.alive.get(leader.broker_id) is leader:
                log = leader.partition.log
                partition.reset_to_leader(fetch, log.log_start_offset, log.log_end_offset)
        elif isinstance(read, KafkaError):
            return
        elif read.diverging_epoch is not None:
            partition.truncate_to_diverging_epoch(fetch, *read.diverging_epoch)
        else:
            try:
                records = b""
                if read.records is not None:
                    # sendfile reads when the bytes are sent: the leader may have truncated its log meanwhile
                    if self.alive.get(response.leader.broker_id) is not response.leader:
                        return
                    records = read.records.read()
                partition.append_as_follower(
                    fetch, records, high_watermark=read.high_watermark, log_start_offset=read.log_start_offset
                )
            except (OSError, EOFError, CorruptMessage) as error:
                self.note(repr(error))

    def deliver_image(self) -> None:
        behind = [each for each in self.alive.values() if each.seen < len(self.controller.images) - 1]
        process = self._some(behind)
        if process is not None:
            version = self.random.randint(process.seen + 1, len(self.controller.images) - 1)
            self._apply(process, version)
            self.note(f"{process.broker_id}: {process.image}")

    def deliver_alter_partition(self) -> None:
        process = self._some([each for each in self.alive.values() if each.alter_requests])
        if process is not None:
            self._alter_partition(process, answered=self.random.random() > 0.3)

    def _alter_partition(self, process: Incarnation, *, answered: bool) -> None:
        change = process.alter_requests.popleft()
        error: KafkaError | None = None
        try:
            image = self.controller.alter_partition(process.broker_id, change)
        except KafkaError as refused:
            error = refused
        if not answered:
            error = NetworkException()
        self.note(f"{process.broker_id}: {change} -> {error!r}")
        partition = process.partition
        if error is not None:
            if partition.isr_change_refused(change, error):
                process.alter_requests.append(change)
        else:
            partition.isr_change_accepted(
                change,
                leader_epoch=LeaderEpoch(image.leader_epoch),
                partition_epoch=image.partition_epoch,
                in_sync_replicas=[BrokerId(each) for each in image.isr],
            )

    def pass_time(self) -> None:
        self.clock.now += self.random.choice([0.5, 2, 6])

    def tick(self) -> None:
        leader = self._some(self.leaders())
        if leader is not None:
            self._tick(leader)

    def _tick(self, leader: Incarnation) -> None:
        change = leader.partition.propose_isr_change(self.clock.monotonic())
        if change is not None:
            self.note(f"{leader.broker_id}: {change}")
            leader.alter_requests.append(change)

    def crash_one(self) -> None:
        if len(self.alive) > 1:
            broker = self.random.choice(sorted(self.alive))
            self.note(str(broker))
            self.crash(broker)

    def restart_one(self) -> None:
        broker = self.random.choice(REPLICAS)
        if broker in self.alive:
            if self.random.random() < (0.2 if self.options.fsync else 0.7):
                return
            self.crash(broker)
        # Without fsync records survive a power loss in the memory of the other members of the ISR alone.
        others = [each for each in self.controller.now.isr if each != broker]
        may_lose = self.options.power_losses and (self.options.fsync or bool(others))
        power_loss = may_lose and self.random.random() < (0.9 if self.options.fsync else 0.5)
        self.note(f"{broker}, power loss: {power_loss}")
        self.restart(broker, power_loss=power_loss)

    def fence_one(self) -> None:
        """The controller does not hear from a broker, which may go on."""
        broker = self.random.choice(REPLICAS)
        self.note(str(broker))
        self.controller.fence(broker, self.random)

    def unfence_one(self) -> None:
        fenced = [each for each in self.alive if each not in self.controller.live]
        if fenced:
            self.controller.unfence(self.random.choice(fenced), self.random)

    def move_leader(self) -> None:
        self.controller.elect(self.random, without=self.controller.now.leader)
        if self.controller.now.leader == NO_LEADER:
            self.controller.elect(self.random)

    def delete_records(self) -> None:
        leader = self._some(self.leaders())
        if leader is not None:
            log = leader.log
            offset = self.random.randint(log.log_start_offset, log.high_watermark)
            leader.partition.delete_records(Offset(offset))
            self.deleted = max(self.deleted, offset)
            self.note(f"{leader.broker_id} up to {offset}")

    def flush_one(self) -> None:
        process = self._some([each for each in self.alive.values() if each.dirty])
        if process is not None:
            self._flush(process)

    def _flush(self, process: Incarnation) -> None:
        process.dirty = False
        process.log.flush()
        self.durable[process.broker_id] = process.log.log_end_offset
        process.partition.flushed()
        self.note(str(process.broker_id))

    # --- what must hold ---------------------------------------------------------------------------------------------

    def contents(self, broker: int) -> dict[int, bytes]:
        log = self.logs[broker]
        state = (log, log.log_start_offset, log.log_end_offset, log.truncations)
        known = self._contents.get(broker)
        if known is None or known[0] != state:
            known = self._contents[broker] = (state, dict(batches_of(log)))
        return known[1]

    def _isr_sizes(self) -> dict[Incarnation, tuple[int, int]]:
        return {
            leader: (len(leader.partition.in_sync_replicas), leader.log.high_watermark) for leader in self.leaders()
        }

    def check(self, before: dict[Incarnation, tuple[int, int]]) -> None:
        self._complete()
        for broker, log in self.logs.items():
            self.durable[broker] = min(self.durable[broker], log.log_end_offset)
        for leader, (isr_size, high_watermark) in self._isr_sizes().items():
            key = leader, leader.partition.leader_epoch
            assert high_watermark >= self.high_watermarks.get(key, 0), (
                f"the high watermark of {leader.broker_id} goes back"
            )
            self.high_watermarks[key] = high_watermark
            if leader in before and high_watermark > before[leader][1]:
                assert max(isr_size, before[leader][0]) >= self.options.min_insync_replicas, (
                    f"the high watermark of {leader.broker_id} moves with {isr_size} in-sync replicas"
                )
        for broker, log in self.logs.items():
            for base_offset, data in self.contents(broker).items():
                if base_offset < log.high_watermark:
                    known = self.committed.setdefault(base_offset, data)
                    assert known == data, f"broker {broker} has other committed records at {base_offset}"
        self._check_isr()

    def _check_isr(self) -> None:
        """Every member of the ISR has all records below the high watermark of the leader."""
        now = self.controller.now
        leader = self.alive.get(now.leader)
        if leader is None or not leader.partition.is_leader or leader.partition.leader_epoch != now.leader_epoch:
            return
        high_watermark = leader.log.high_watermark
        wanted = {offset: data for offset, data in self.contents(now.leader).items() if offset < high_watermark}
        for member in now.isr:
            missing = self._missing(member, wanted)
            assert not missing, f"broker {member} is in the ISR without {missing}, high watermark {high_watermark}"

    def _missing(self, broker: int, wanted: dict[int, bytes]) -> list[int]:
        """Returns the offsets at which a broker does not have these records, although nobody has deleted them."""
        has = self.contents(broker)
        return [offset for offset, data in wanted.items() if offset >= self.deleted and has.get(offset) != data]

    def _elected(self, leader: int) -> None:
        missing = self._missing(leader, self.acknowledged)
        assert not missing, f"broker {leader} is elected without the acknowledged records at {missing}"

    def _check_enough_copies(self, offset: int, data: bytes) -> None:
        copies = [broker for broker in REPLICAS if self.contents(broker).get(offset) == data]
        if not self.lost_tails and offset >= self.deleted:
            assert len(copies) >= self.options.min_insync_replicas, f"{offset} is acknowledged, only {copies} have it"

    # --- the end ----------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Ends all faults. Then the replicas must become one again, and nothing may wait for ever."""
        self.trace.append("heal")
        for broker in REPLICAS:
            if broker not in self.alive:
                self.restart(broker, power_loss=False)
            elif broker not in self.controller.live:
                self.controller.unfence(broker, self.random)
        self.requests.clear()
        self.responses.clear()
        for _ in range(80):
            self.clock.now += 1
            self.calm()
        start = max(log.log_start_offset for log in self.logs.values())
        contents = [
            {offset: data for offset, data in self.contents(broker).items() if offset >= start} for broker in REPLICAS
        ]
        assert contents[0] == contents[1] == contents[2], "the logs differ in the end"
        now = self.controller.now
        assert set(now.isr) == set(REPLICAS), f"only {now.isr} are in sync in the end"
        for process in self.alive.values():
            log = process.log
            assert log.high_watermark == log.log_end_offset, (
                f"broker {process.broker_id} does not know what is committed"
            )
            assert not process.produces, "a produce waits for ever"
        self._elected(now.leader)

    def calm(self) -> None:
        """Lets everybody do what is due, without a fault."""
        for process in list(self.alive.values()):
            for step in self._due_steps(process):
                before = self._isr_sizes()
                step()
                self.check(before)

    def _due_steps(self, process: Incarnation) -> Iterator[Callable[[], object]]:
        newest = len(self.controller.images) - 1
        if process.seen < newest:
            yield lambda: self._apply(process, newest)
        if process.dirty:
            yield lambda: self._flush(process)
        if process.partition.is_leader:
            yield lambda: self._tick(process)
        else:
            yield lambda: self._send_fetch(process)
        while self.requests:
            yield lambda: self._answer(self.requests.pop())
        while self.responses:
            yield lambda: self._receive(self.responses.pop())
        if process.alter_requests:
            yield lambda: self._alter_partition(process, answered=True)
