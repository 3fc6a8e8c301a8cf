"""Every call of an administrator."""

from barnabas.client.admin.cluster_calls import ClusterCalls
from barnabas.client.admin.group_calls import GroupCalls
from barnabas.client.admin.topic_calls import TopicCalls
from barnabas.client.admin.transaction_calls import TransactionCalls

__all__ = ["AdminCalls", "keys_move"]


class AdminCalls(TopicCalls, ClusterCalls, GroupCalls, TransactionCalls):
    """The fronts make their methods of these, so that both have the same ones. See the bases."""


def keys_move(topic: str) -> str:
    """The warning before a topic grows."""
    return (
        f"topic {topic!r} has records: with more partitions, new ones of the same key may go to another partition, so"
        " consumers do not see them in order with the old ones"
    )
