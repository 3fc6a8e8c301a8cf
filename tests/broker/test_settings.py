"""Settings that reach the running broker: limits that change while it runs."""

from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.testing import Broker
from broker.sent_requests import batch, produce
from broker.wire import Wire, on_loop, server_of


def is_served(broker: Broker, timeout_s: float = 60) -> bool:
    with Wire(broker, timeout_s=timeout_s) as wire:
        try:
            return bool(wire.ask(MetadataRequest(topics=[]), 12).brokers)
        except (TimeoutError, EOFError, OSError):
            return False


def alter(wire: Wire, name: str, value: str) -> int:
    resource = AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[AlterableConfig(name=name, config_operation=0, value=value)],
    )
    (answer,) = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return int(answer.error_code)


def test_limits_on_connections_change_while_the_broker_runs() -> None:
    with Broker() as broker, Wire(broker) as wire:
        assert is_served(broker)
        assert alter(wire, "max.connections", "1") == 0
        assert not is_served(broker, 0.3)
        assert alter(wire, "max.connections", "100") == 0
        assert is_served(broker)
        assert alter(wire, "max.connections.per.ip", "1") == 0
        assert not is_served(broker, 0.3)
        assert alter(wire, "max.connections.per.ip.overrides", "127.0.0.1:5") == 0
        assert is_served(broker)
        assert alter(wire, "max.connections.per.ip.overrides", "127.0.0.1") != 0
        assert alter(wire, "max.connection.creation.rate", "0") == 0
        assert not is_served(broker, 0.3)


def test_producers_are_forgotten_after_as_long_as_is_said_while_it_runs() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        wire.ask(produce(broker, {0: batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)}), 12)
        logs = server_of(broker).log_manager
        later_ms = server_of(broker).clock.wall_ms() + 10_000
        assert on_loop(broker, lambda: logs.expire_producers(later_ms)) == 0
        assert alter(wire, "producer.id.expiration.ms", "5000") == 0
        broker.create_topic("made-afterwards")
        assert {log.producers.expiration_ms for log in logs.logs.values()} == {5000}
        assert on_loop(broker, lambda: logs.expire_producers(later_ms)) == 1
