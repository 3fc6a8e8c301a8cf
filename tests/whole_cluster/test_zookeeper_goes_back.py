"""A simulated ZooKeeper whose state was put back from a copy, under brokers that run."""

import json

import pytest

import barnabas.aio
from broker.planted_bugs import an_old_registry_is_believed
from whole_cluster.cluster import Cluster, simulated_cluster
from whole_cluster.zookeeper import Ensemble

STATE = "/kafka/barnabas/state"


def create(cluster: Cluster, *names: str) -> None:
    done: list[object] = []

    async def ask() -> None:
        async with barnabas.aio.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            done.append(await admin.create_topics(list(names)))

    cluster.spawn(cluster.client_host("x"), ask())
    cluster.wait("topics", lambda: bool(done))
    cluster.world.pass_time(3.0)


def epochs(cluster: Cluster) -> list[dict[str, int]]:
    """The leader epochs that each broker knows."""
    return [
        {name: topic.partitions[0].leader_epoch for name, topic in broker.image.topics.items()}
        for broker in cluster.brokers.values()
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dies", ["nobody", "the controller", "another"])
def test_nobody_writes_there_and_nobody_is_elected(seed: int, dies: str) -> None:
    with simulated_cluster(seed, {}, zookeeper=True) as cluster:
        cluster.start()
        zookeeper = cluster.zookeeper
        assert isinstance(zookeeper, Ensemble)
        create(cluster, "a")
        kept = len(zookeeper.states) - 1
        create(cluster, "b", "c")
        before = epochs(cluster)[0]
        zookeeper.go_back(kept)
        version = json.loads(zookeeper.tree[STATE].data)["version"]
        if dies != "nobody":
            controller = next(iter(cluster.brokers.values())).image.controller_id
            others = [node_id for node_id in cluster.machines if node_id != controller]
            cluster.machines[controller if dies == "the controller" else others[0]].kill()
        cluster.world.pass_time(30.0)
        assert json.loads(zookeeper.tree[STATE].data)["version"] == version
        assert all(each == before for each in epochs(cluster))


@pytest.mark.source
def test_brokers_that_believed_it_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    an_old_registry_is_believed(monkeypatch)
    with pytest.raises(AssertionError):
        test_nobody_writes_there_and_nobody_is_elected(0, "another")
