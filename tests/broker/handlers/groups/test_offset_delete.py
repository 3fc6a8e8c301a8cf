"""OffsetDelete."""

from importlib import import_module
from typing import Any

from barnabas.protocol.apis import ApiKey
from broker.handlers.groups.handler_rig import World, commit
from broker.handlers.groups.handler_rig import world as world


def test_offset_delete(world: World) -> None:
    commit(world, 9, {0: 10, 1: 20})
    module = import_module("barnabas.protocol.messages.offset_delete")

    def partitions(*indexes: int) -> list[Any]:
        return [module.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]

    topics = [
        module.OffsetDeleteRequestTopic(name="orders", partitions=partitions(0, 9)),
        module.OffsetDeleteRequestTopic(name="ghost", partitions=partitions(0)),
    ]
    answer = world.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
    codes = {(topic.name, one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions}
    assert codes == {("orders", 0): 0, ("orders", 9): 3, ("ghost", 0): 3}
    assert world.rig.fetch_everything() == {("orders", 1): 20}
