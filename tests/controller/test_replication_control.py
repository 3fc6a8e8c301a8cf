# ruff: noqa: E501 -- sentences are compared whole
"""Stories about topics, partitions and leaders. The sentences are those of Apache Kafka 4.4.0."""

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.controller import replication_control
from barnabas.controller.requests import TopicRequest
from barnabas.errors import EligibleLeadersNotAvailable, PolicyViolation, UnknownTopicOrPartition
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.types import BrokerId

from .story import NoChance, World, tell

STORIES = {
    "numbers come from the request or from the broker's defaults": """
        $ settings num.partitions=3 default.replication.factor=2
        $ brokers 1 2
        $ create a
        a: created
        $ create b partitions=1 factor=1
        b: created
        $ show
        a-0 leader 1 epoch 0 isr 1,2 of 1,2
        a-1 leader 2 epoch 0 isr 2,1 of 2,1
        a-2 leader 1 epoch 0 isr 1,2 of 1,2
        b-0 leader 1 epoch 0 isr 1 of 1
    """,
    "names are refused in Kafka's words": """
        $ brokers 1
        $ create a.b bad! __cluster_metadata ''
        a.b: created
        bad!: INVALID_TOPIC_EXCEPTION Topic name is invalid: 'bad!' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'
        __cluster_metadata: INVALID_REQUEST Creation of internal topic __cluster_metadata is prohibited.
        : INVALID_TOPIC_EXCEPTION Topic name is invalid: the empty string is not allowed
        $ create a_b a.b
        a_b: INVALID_TOPIC_EXCEPTION Topic 'a_b' collides with existing topic: a.b
        a.b: TOPIC_ALREADY_EXISTS Topic 'a.b' already exists.
        $ create x_y x.y
        x_y: created
        x.y: INVALID_TOPIC_EXCEPTION Topic 'x.y' collides with existing topic: x_y
        $ create twice other twice
        twice: INVALID_REQUEST Duplicate topic name.
        other: created
        $ create twice
        twice: created
    """,
    "numbers are refused in Kafka's words": """
        $ brokers 1
        $ create a factor=2
        a: INVALID_REPLICATION_FACTOR Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned.
        $ create a factor=0
        a: INVALID_REPLICATION_FACTOR Replication factor must be larger than 0, or -1 to use the default value.
        $ create a factor=-2
        a: INVALID_REPLICATION_FACTOR Replication factor must be larger than 0, or -1 to use the default value.
        $ create a partitions=0
        a: INVALID_PARTITIONS Number of partitions was set to an invalid non-positive value.
        $ create a partitions=2147483647
        a: POLICY_VIOLATION Excessively large number of partitions per request.
        $ brokers fenced=1
        $ create a
        a: INVALID_REPLICATION_FACTOR Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have all their log directories cordoned.
        $ show
    """,
    "settings are checked before anything is made": """
        $ brokers 1
        $ create a segment.bytes=100 cleanup.policy=compact,delete
        a: created
        $ create b segmnt.bytes=100
        b: INVALID_CONFIG Unknown topic config name: segmnt.bytes. Did you mean segment.bytes?
        $ create b segment.bytes=abc
        b: INVALID_CONFIG Invalid value abc for configuration segment.bytes: Not a number of type INT
        $ create b retention.ms=NULL segment.bytes=NULL
        b: INVALID_CONFIG Null value not supported for topic configs: retention.ms,segment.bytes
        $ configs
        topic a: cleanup.policy=compact,delete segment.bytes=100
    """,
    "who chooses replicas chooses all": """
        $ brokers 1 2 fenced=3
        $ create a assign=1,2/2,1
        a: created
        $ create b assign=2,3/1,3
        b: created
        $ show
        a-0 leader 1 epoch 0 isr 1,2 of 1,2
        a-1 leader 2 epoch 0 isr 2,1 of 2,1
        b-0 leader 2 epoch 0 isr 2 of 2,3
        b-1 leader 1 epoch 0 isr 1 of 1,3
        $ create c assign=1/2,1
        c: INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with previous partitions, which have 1 replica(s).
        $ create c assign=1/9
        c: INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes broker 9, but no such broker is registered.
        $ create c assign=1,1
        c: INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes the broker 1 more than once.
        $ create c assign=0:1/0:2
        c: INVALID_REPLICA_ASSIGNMENT Found multiple manual partition assignments for partition 0
        $ create c assign=0:1/2:2
        c: INVALID_REPLICA_ASSIGNMENT partitions should be a consecutive 0-based integer sequence
        $ create c assign=3
        c: INVALID_REPLICA_ASSIGNMENT All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown.
        $ create c assign=1 factor=1
        c: INVALID_REQUEST A manual partition assignment was specified, but replication factor was not set to -1.
        $ create c assign=1 partitions=1
        c: INVALID_REQUEST A manual partition assignment was specified, but numPartitions was not set to -1.
    """,
    "topics are deleted by name or id": """
        $ brokers 1
        $ create a b
        a: created
        b: created
        $ delete a id:2 c id:7
        a: deleted
        id:2: deleted
        c: UNKNOWN_TOPIC_OR_PARTITION This server does not host this topic-partition.
        id:7: UNKNOWN_TOPIC_ID This server does not host this topic ID.
        $ show
    """,
    "partitions only grow": """
        $ brokers 1 2
        $ create a partitions=1 factor=2
        a: created
        $ grow a to=3
        a: grown
        $ show
        a-0 leader 1 epoch 0 isr 1,2 of 1,2
        a-1 leader 1 epoch 0 isr 1,2 of 1,2
        a-2 leader 2 epoch 0 isr 2,1 of 2,1
        $ grow a to=3
        a: INVALID_PARTITIONS Topic already has 3 partition(s).
        $ grow a to=2
        a: INVALID_PARTITIONS The topic a currently has 3 partition(s); 2 would not be an increase.
        $ grow nosuch to=2
        nosuch: UNKNOWN_TOPIC_OR_PARTITION This server does not host this topic-partition.
        $ grow a to=5 assign=1,2
        a: INVALID_REPLICA_ASSIGNMENT Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.
        $ grow a to=4 assign=1
        a: INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with previous partitions, which have 2 replica(s).
        $ grow a to=4 assign=2,1
        a: grown
        $ grow a a to=9
        a: INVALID_REQUEST Duplicate topic name.
        $ grow a to=2147483647
        a: POLICY_VIOLATION Excessively large number of partitions per request.
    """,
    "internal topics keep their number of partitions": """
        $ brokers 1
        $ create __consumer_offsets __transaction_state a
        __consumer_offsets: created
        __transaction_state: created
        a: created
        $ grow __consumer_offsets __transaction_state a to=2
        __consumer_offsets: INVALID_PARTITIONS The internal topic __consumer_offsets keeps its 1 partition(s): by their number brokers find the group or transactional id in them. offsets.topic.num.partitions and transaction.state.log.num.partitions count when such a topic is created.
        __transaction_state: INVALID_PARTITIONS The internal topic __transaction_state keeps its 1 partition(s): by their number brokers find the group or transactional id in them. offsets.topic.num.partitions and transaction.state.log.num.partitions count when such a topic is created.
        a: grown
        $ show
        __consumer_offsets-0 leader 1 epoch 0 isr 1 of 1
        __transaction_state-0 leader 1 epoch 0 isr 1 of 1
        a-0 leader 1 epoch 0 isr 1 of 1
        a-1 leader 1 epoch 0 isr 1 of 1
    """,
    "partitions that are added during a reassignment get as many replicas as the others will have": """
        $ brokers 1 2 3 4
        $ create a assign=1,2,3
        a: created
        $ reassign a-0=1,2,4
        a-0: reassigned
        $ grow a to=2
        a: grown
        $ grow a to=3 assign=2,3,4
        a: grown
        $ show
        a-0 leader 1 epoch 0 isr 1,2,3 of 1,2,4,3 adding 4 removing 3
        a-1 leader 1 epoch 0 isr 1,2,3 of 1,2,3
        a-2 leader 2 epoch 0 isr 2,3,4 of 2,3,4
    """,
    "an election where all is well is not needed": """
        $ brokers 1
        $ create a
        a: created
        $ elect preferred a-0 a-9 zz-0
        a-0: ELECTION_NOT_NEEDED Leader election not needed for topic partition.
        a-9: UNKNOWN_TOPIC_OR_PARTITION No such partition as a-9
        zz-0: UNKNOWN_TOPIC_OR_PARTITION No such topic as zz
        $ elect unclean a-0
        a-0: ELECTION_NOT_NEEDED Leader election not needed for topic partition.
        $ elect preferred all
        $ elect unclean all
        $ elect wrong all
        elect: INVALID_REQUEST Unknown election type 7
    """,
    "leaders follow the brokers that are there": """
        $ brokers 1 2 3
        $ create a assign=1,2,3
        a: created
        $ brokers 2 3
        $ mend
        a-0 leader 2 epoch 1 isr 2,3 of 1,2,3
        $ brokers 2
        $ mend
        a-0 leader 2 epoch 1 isr 2 of 1,2,3
        $ brokers 1 3
        $ mend
        a-0 leader -1 epoch 2 isr - of 1,2,3 elr 2 last 2
        $ elect preferred a-0
        a-0: PREFERRED_LEADER_NOT_AVAILABLE The preferred leader was not available.
        $ brokers 2 3
        $ mend
        a-0 leader 2 epoch 3 isr 2 of 1,2,3
    """,
    "a leader from outside the ISR only where records may be lost": """
        $ brokers 1 2
        $ create a assign=1,2
        a: created
        $ brokers 1
        $ mend
        a-0 leader 1 epoch 0 isr 1 of 1,2
        $ brokers 2
        $ mend
        a-0 leader -1 epoch 1 isr - of 1,2 elr 1 last 1
        $ mend a
        a-0 leader 2 epoch 2 isr 2 of 1,2
    """,
    "an administrator may ask for it too": """
        $ brokers 1 2
        $ create a assign=1,2
        a: created
        $ brokers 1
        $ mend
        a-0 leader 1 epoch 0 isr 1 of 1,2
        $ brokers
        $ mend
        a-0 leader -1 epoch 1 isr - of 1,2 elr 1 last 1
        $ elect unclean a-0
        a-0: ELIGIBLE_LEADERS_NOT_AVAILABLE Eligible topic partition leaders are not available.
        $ brokers 2
        $ elect unclean a-0
        a-0: elected
        $ show
        a-0 leader 2 epoch 2 isr 2 of 1,2
        $ elect unclean a-0
        a-0: ELECTION_NOT_NEEDED Leader election not needed for topic partition.
    """,
    "replicas that left the ISR below min.insync.replicas are eligible": """
        $ brokers 1 2 3
        $ create a assign=1,2,3 min.insync.replicas=2
        a: created
        $ brokers 1 2
        $ mend
        a-0 leader 1 epoch 0 isr 1,2 of 1,2,3
        $ brokers 1
        $ mend
        a-0 leader 1 epoch 0 isr 1 of 1,2,3 elr 2
        $ brokers fenced=1,2,3
        $ mend
        a-0 leader -1 epoch 1 isr - of 1,2,3 elr 1,2 last 1
        $ brokers 3
        $ mend
        a-0 leader -1 epoch 1 isr - of 1,2,3 elr 1,2 last 1
        $ brokers 3 2
        $ mend
        a-0 leader 2 epoch 2 isr 2 of 1,2,3 elr 1
        $ isr a-0 2 3 by=2
        a-0: isr 2,3
        $ show
        a-0 leader 2 epoch 2 isr 2,3 of 1,2,3
    """,
    "who may lack records is not eligible": """
        $ brokers 1 2 3
        $ create a assign=1,2,3 min.insync.replicas=3
        a: created
        $ brokers fenced=2,3 unclean=1
        $ mend
        a-0 leader -1 epoch 1 isr - of 1,2,3 elr 2,3 last 1
        $ brokers 1 fenced=2,3
        $ mend
        a-0 leader -1 epoch 1 isr - of 1,2,3 elr 2,3 last 1
        $ brokers 1 unclean=2,3
        $ mend
        a-0 leader 1 epoch 2 isr 1 of 1,2,3
    """,
    "the last leader leads again where nobody is known to have more": """
        $ brokers 1 2
        $ create a assign=2,1
        a: created
        $ brokers unclean=1,2
        $ mend
        a-0 leader -1 epoch 1 isr - of 2,1 last 2
        $ brokers 1 fenced=2
        $ mend
        a-0 leader -1 epoch 1 isr - of 2,1 last 2
        $ brokers 1 2
        $ mend
        a-0 leader 2 epoch 2 isr 2 of 2,1
    """,
    "who has lost its logs leads only where records may be given up": """
        $ brokers 1 2
        $ create a assign=1,2
        a: created
        $ brokers 1
        $ mend
        a-0 leader 1 epoch 0 isr 1 of 1,2
        $ brokers 2 lost=1
        $ mend
        a-0 leader -1 epoch 1 isr - of 1,2
        $ brokers 2 1
        $ mend
        a-0 leader -1 epoch 1 isr - of 1,2
        $ elect preferred a-0
        a-0: PREFERRED_LEADER_NOT_AVAILABLE The preferred leader was not available.
        $ mend a
        a-0 leader 1 epoch 2 isr 1 of 1,2
    """,
    "a replica that has no others is not taken out": """
        $ brokers 1
        $ create a
        a: created
        $ brokers unclean=1
        $ mend
        a-0 leader -1 epoch 1 isr - of 1 elr 1 last 1
        $ brokers lost=1
        $ mend
        a-0 leader -1 epoch 1 isr - of 1 elr 1 last 1
        $ brokers 1
        $ mend
        a-0 leader 1 epoch 2 isr 1 of 1
    """,
    "an unclean election takes the last leader first": """
        $ brokers 1 2 3
        $ create a assign=1,2,3 min.insync.replicas=2
        a: created
        $ brokers 2
        $ mend
        a-0 leader 2 epoch 1 isr 2 of 1,2,3 elr 1,3
        $ brokers fenced=1,3 unclean=2
        $ mend
        a-0 leader -1 epoch 2 isr - of 1,2,3 elr 1,3 last 2
        $ brokers 2 fenced=1,3
        $ mend
        a-0 leader -1 epoch 2 isr - of 1,2,3 elr 1,3 last 2
        $ elect unclean a-0
        a-0: elected
        $ show
        a-0 leader 2 epoch 3 isr 2 of 1,2,3
    """,
    "preferred leaders lead again where they are in sync": """
        $ brokers 1 2 3
        $ create a assign=1,2/2,1/3,1
        a: created
        $ brokers 1
        $ mend
        a-0 leader 1 epoch 0 isr 1 of 1,2
        a-1 leader 1 epoch 1 isr 1 of 2,1
        a-2 leader 1 epoch 1 isr 1 of 3,1
        $ brokers 1 2 3
        $ isr a-1 1 2 by=1
        a-1: isr 1,2
        $ balance
        a-0 leader 1 epoch 0 isr 1 of 1,2
        a-1 leader 2 epoch 2 isr 1,2 of 2,1
        a-2 leader 1 epoch 1 isr 1 of 3,1
    """,
    "the preferred leader comes back": """
        $ brokers 2 fenced=1
        $ create a assign=2,1
        a: created
        $ brokers 1 2
        $ create b assign=1,2
        b: created
        $ brokers 2
        $ mend
        a-0 leader 2 epoch 0 isr 2 of 2,1
        b-0 leader 2 epoch 1 isr 2 of 1,2
        $ brokers 1 2
        $ elect preferred b-0
        b-0: PREFERRED_LEADER_NOT_AVAILABLE The preferred leader was not available.
    """,
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_story(story: str) -> None:
    told, lived = tell(story)
    assert lived == told


def test_the_preferred_leader_leads_again_once_in_sync() -> None:
    world = World()
    for line in ("brokers 1 2", "create a assign=1,2", "brokers 2", "mend", "brokers 1 2"):
        world.do(line)
    delta = MetadataDelta(world.image)
    partition = world.image.topics["a"].partitions[0]
    delta.put_partitions("a", [(0, partition._replace(isr=(2, 1), partition_epoch=partition.partition_epoch + 1))])
    world.image = delta.apply(99).image
    assert world.do("elect preferred all") == ["a-0: elected"]
    assert world.do("show") == ["a-0 leader 1 epoch 2 isr 2,1 of 1,2"]


def test_an_in_sync_follower_takes_over_the_lead() -> None:
    world = World()
    for line in ("brokers 1 2 3", "create a assign=1,2,3", "brokers 1 3", "mend"):
        world.do(line)
    change = replication_control.moved_leader(world.image, "a", 0, BrokerId(3))
    before = world.image.topics["a"].partitions[0]
    assert change.expected_partition_epoch == before.partition_epoch
    assert change.partition == before._replace(
        leader=3, leader_epoch=before.leader_epoch + 1, partition_epoch=before.partition_epoch + 1
    )
    for leader in (1, 2, 4):  # the leader itself, one that is not in sync, none at all
        with pytest.raises(EligibleLeadersNotAvailable, match=f"broker {leader} is no in-sync follower of a-0"):
            replication_control.moved_leader(world.image, "a", 0, BrokerId(leader))
    with pytest.raises(UnknownTopicOrPartition):
        replication_control.moved_leader(world.image, "a", 1, BrokerId(3))


def test_one_request_cannot_ask_for_without_end() -> None:
    delta = MetadataDelta(MetadataImage("x"))
    delta.put_broker(BrokerImage(1, 1, ()))
    image = delta.apply(1).image
    requests = [TopicRequest(f"t{number}", 3000) for number in range(5)]
    results = replication_control.create_topics(image, requests, BrokerConfig(), NoChance(), World().new_id).results
    refused = [name for name, result in results.items() if isinstance(result, PolicyViolation)]
    assert refused == ["t3", "t4"]
