"""One simulation: a cluster with clients, faults for a while, then healing, and what must hold all the time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import barnabas.aio
from barnabas.types import TopicPartition
from whole_cluster.ambient import no_collections
from whole_cluster.clients import PARTITIONS, GroupMember, GroupState, Renewals, Transactions, Writer
from whole_cluster.cluster import NODE_IDS, Cluster, simulated_cluster
from whole_cluster.faults import Faults
from whole_cluster.invariants import RENEWED, Invariants

__all__ = ["DEFAULT", "DISKS", "DURABLE", "ZOOKEEPER", "Options", "Outcome", "simulate"]

ORDERS: Final = "orders"
LEDGER: Final = "ledger"


@dataclass(frozen=True)
class Options:
    seconds: float = 6.0
    """The virtual time of the faults."""
    fault_interval_s: float = 0.6
    writers: int = 2
    members: int = 2
    transactions: int = 1
    faults: Mapping[str, int] = field(default_factory=dict)
    """Other weights of some kinds of faults."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the brokers beside the usual ones."""
    zookeeper: bool = False
    """Whether the registry is in ZooKeeper, and each broker on a machine of its own."""


DEFAULT: Final = Options()
DURABLE: Final = Options(settings={"durability": "fsync"}, faults={"blackout": 3, "power": 4})
"""Records are acknowledged when they are on the disks, so the power of all brokers may fail."""
ZOOKEEPER: Final = Options(zookeeper=True)
DISKS: Final = Options(
    faults={"kill": 6, "restart": 6, "old copy": 8, "unmount": 6, "unmount all": 2, "kill all": 2},
    members=0,
    transactions=0,
    fault_interval_s=0.3,
)
"""Data directories vanish, come back and are old."""


@dataclass(frozen=True)
class Outcome:
    digest: str
    steps: int
    records: int
    transactions: int
    seconds: float


def simulate(seed: int, options: Options = DEFAULT, tell: Callable[[str], object] | None = None) -> Outcome:
    """Runs one simulation. Raises SimulationError for what must not be. `tell` is called with each line of the
    trace."""
    with no_collections():
        return _simulate(seed, options, tell)


def _simulate(seed: int, options: Options, tell: Callable[[str], object] | None) -> Outcome:
    with simulated_cluster(seed, options.settings, tell, zookeeper=options.zookeeper) as cluster:
        return _Simulation(cluster, options).run()


class _Simulation:
    def __init__(self, cluster: Cluster, options: Options) -> None:
        self.cluster = cluster
        self.options = options
        self.world = cluster.world
        self.invariants = Invariants(cluster)
        self.world.after_step = self.invariants.after_step

    def run(self) -> Outcome:
        cluster, options, world = self.cluster, self.options, self.world
        cluster.start()
        self._create_topics()
        began = world.now
        writers = [Writer(cluster, self.invariants, f"w{i}", ORDERS) for i in range(options.writers)]
        group = GroupState()
        members = [GroupMember(cluster, self.invariants, f"m{i}", ORDERS, group) for i in range(options.members)]
        transactions = [Transactions(cluster, self.invariants, f"t{i}", LEDGER) for i in range(options.transactions)]
        clients = [*writers, *members, *transactions, Renewals(cluster, self.invariants, "r")]
        faults = Faults(cluster, self.invariants, options.fault_interval_s, options.faults)
        faults.begin()
        world.pass_time(options.seconds)
        faults.heal()
        cluster.wait("the brokers are live", cluster.are_live)
        world.pass_time(1.0)
        for client in clients:
            client.is_stopping = True
        cluster.wait("the clients end", lambda: all(client.has_ended for client in clients), 120.0)
        cluster.wait("all replicas are in sync", self.invariants.all_in_sync)
        cluster.wait("all transactions have ended", self.invariants.all_ended)
        cluster.wait("all replicas are in sync again", self.invariants.all_in_sync)
        self.invariants.check_copies(NODE_IDS)
        self.invariants.check_producer_ids()
        cluster.wait("no request waits once the connections of clients have ended", self.invariants.none_waits, 10.0)
        data = {
            partition: b"".join(
                batch.data for _, batch in sorted(self.invariants.committed[TopicPartition(ORDERS, partition)].items())
            )
            for partition in range(PARTITIONS)
        }
        for writer in writers:
            writer.check(data)
        if transactions:
            found = self._read_committed()
            for each in transactions:
                each.check(found)
        return Outcome(
            world.digest, world.steps,
            sum(len(writer.sent) for writer in writers), sum(len(each.outcomes) for each in transactions),
            world.now - began,
        )  # fmt: skip

    def _create_topics(self) -> None:
        done = []

        async def create() -> None:
            async with barnabas.aio.Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
                await admin.create_topics([ORDERS, LEDGER, RENEWED])
                await admin.alter_configs({("topic", ORDERS): {"retention.ms": "-1"}})
            done.append(True)

        self.cluster.spawn(self.cluster.client_host("admin"), create())
        self.cluster.wait("the topics are created", lambda: bool(done))

    def _read_committed(self) -> dict[int, list[bytes]]:
        """Returns what a consumer of committed transactions finds."""
        found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        done = []

        async def read() -> None:
            partitions = [TopicPartition(LEDGER, partition) for partition in found]
            async with barnabas.aio.Consumer(
                bootstrap_servers=self.cluster.bootstrap_servers, isolation_level="read_committed",
                auto_offset_reset="earliest",
            ) as consumer:  # fmt: skip
                consumer.assign(partitions)
                ends = await consumer.end_offsets(partitions)
                while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
                    for record in await consumer.poll(1.0):
                        found[record.partition].append(record.value)
            done.append(True)

        self.cluster.spawn(self.cluster.client_host("reader"), read())
        self.cluster.wait("the ledger is read", lambda: bool(done))
        return found
