"""Decides how topics are made that nobody has described: those that a client asks for, and Kafka's internal ones.

Such a topic keeps its replicas for ever, and the first client may come before the last broker. A number of replicas
that the operator has set is demanded: until so many brokers are registered, fenced ones included, the topic is not
made. A default is a wish: one broker alone has topics of one replica. Where the operator has set
`default.replication.factor` alone, internal topics do not get fewer, as far as their own default goes.
"""

from typing import Final, NamedTuple

from barnabas.config.broker import BrokerConfig
from barnabas.controller.requests import TopicRequest
from barnabas.metadata.image import CONSUMER_OFFSETS, TRANSACTION_STATE

__all__ = ["Factor", "auto_topic_request", "factor_of"]

_DEFAULT: Final = "default.replication.factor"
_INTERNAL: Final = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
}
_SEGMENT_BYTES_MIN: Final = 14


class Factor(NamedTuple):
    """The number of replicas that a topic gets."""

    least: int
    """The topic is not made with fewer."""
    most: int
    """So many, where so many brokers are registered."""
    setting: str
    """That which says `least`."""

    def among(self, registered: int) -> int:
        return max(self.least, min(self.most, registered))


def factor_of(name: str, config: BrokerConfig) -> Factor:
    demanded = config.default_replication_factor if _DEFAULT in config.static else 1
    if name not in _INTERNAL:
        return Factor(demanded, config.default_replication_factor, _DEFAULT)
    setting, wanted = (
        _INTERNAL[name],
        {
            CONSUMER_OFFSETS: config.offsets_topic_replication_factor,
            TRANSACTION_STATE: config.transaction_state_log_replication_factor,
        }[name],
    )
    if setting in config.static:
        return Factor(wanted, wanted, setting)
    return Factor(min(demanded, wanted), wanted, _DEFAULT)


def auto_topic_request(name: str, config: BrokerConfig, registered: int) -> TopicRequest:
    """Returns the request that creates a topic where so many brokers are registered."""
    factor = factor_of(name, config).among(registered)
    if name == CONSUMER_OFFSETS:
        return _internal(
            name,
            config.offsets_topic_num_partitions,
            factor,
            config.offsets_topic_segment_bytes,
            {"compression.type": "producer"},
        )
    if name == TRANSACTION_STATE:
        return _internal(
            name,
            config.transaction_state_log_num_partitions,
            factor,
            config.transaction_state_log_segment_bytes,
            {
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(config.transaction_state_log_min_isr, factor)),
                "unclean.leader.election.enable": "false",
            },
        )
    return TopicRequest(name, replication_factor=factor)


def _internal(
    name: str, partitions: int, factor: int, segment_bytes: int, settings: dict[str, str | None]
) -> TopicRequest:
    segment_bytes = max(segment_bytes, _SEGMENT_BYTES_MIN)
    configs = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes), **settings}
    return TopicRequest(name, partitions, factor, configs=configs)
