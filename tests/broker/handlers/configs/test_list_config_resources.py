"""ListConfigResources: by type."""

from barnabas.broker.server import Broker
from barnabas.errors import UnsupportedVersion
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from broker.admin_rig import ask
from broker.handlers.configs.configs_rig import BROKER, GROUP, LOGGER, TOPIC
from broker.handlers.configs.configs_rig import broker as broker


def test_resources_by_type(broker: Broker) -> None:
    def listed(version: int, *kinds: int) -> set[tuple[int, str]]:
        answer = ask(broker, ListConfigResourcesRequest(resource_types=kinds), version)
        assert answer.error_code == 0
        return {(r.resource_type, r.resource_name) for r in answer.config_resources}

    assert listed(0) == set()
    assert listed(1) == {(TOPIC, "a"), (BROKER, "1"), (LOGGER, "1")}
    assert listed(1, BROKER, GROUP) == {(BROKER, "1")}
    answer = ask(broker, ListConfigResourcesRequest(resource_types=[TOPIC, 99]), 1)
    assert (answer.error_code, list(answer.config_resources)) == (UnsupportedVersion.code, [])
