"""CreatePartitions: more partitions, on chosen brokers and on any."""

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from broker.admin_rig import ask, create, versions
from broker.admin_rig import broker as broker


def more(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    chosen = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=chosen)


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_more_partitions(broker: Broker, version: int) -> None:
    create(broker, "a")
    create(broker, "b")
    request = CreatePartitionsRequest(
        topics=[more("a", 3), more("b", 1), more("nosuch", 3), more("c", 1), more("c", 2)]
    )
    results = ask(broker, request, version).results
    codes = {r.name: r.error_code for r in results}
    assert codes == {
        "a": 0,
        "b": InvalidPartitions.code,
        "nosuch": UnknownTopicOrPartition.code,
        "c": InvalidRequest.code,
    }
    assert len(results) == 4
    assert results[0].error_message is None
    assert broker.replica_manager.leader_of("a", 2).is_leader


def test_more_partitions_on_chosen_brokers(broker: Broker) -> None:
    create(broker, "a")
    (validated,) = ask(broker, CreatePartitionsRequest(topics=[more("a", 2, [[1]])], validate_only=True)).results
    assert validated.error_code == 0
    assert len(broker.image.topics["a"].partitions) == 1
    (too_few,) = ask(broker, CreatePartitionsRequest(topics=[more("a", 2, [])])).results
    assert too_few.error_code == InvalidReplicaAssignment.code
    (done,) = ask(broker, CreatePartitionsRequest(topics=[more("a", 2, [[1]])])).results
    assert done.error_code == 0
    assert len(broker.image.topics["a"].partitions) == 2
