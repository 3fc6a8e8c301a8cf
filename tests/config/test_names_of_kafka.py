"""Whatever name Apache Kafka 4.4.0 knows is no unknown one here."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.client.settings import foreign
from barnabas.client.settings.admin import AdminSettings
from barnabas.client.settings.consumer import ConsumerSettings
from barnabas.client.settings.producer import ProducerSettings
from barnabas.config import kafka_names
from barnabas.config.broker_settings import BROKER_CONFIGS
from barnabas.config.definitions import ConfigDef
from barnabas.config.topic import TOPIC_CONFIGS

NAMES: dict[str, list[str]] = defaultdict(list)
for line in (Path(__file__).parent / "kafka-4.4.0-names.txt").read_text().splitlines()[1:]:
    NAMES[line.split()[0]].append(line.split()[1])
ELSEWHERE = {"max.decompressed.message.bytes"}


def of_client(definitions: ConfigDef) -> Callable[[str], bool]:
    return lambda name: name in definitions or name in foreign.WITHOUT_EFFECT or foreign.refusal(name) is not None


@pytest.mark.parametrize(
    ("kind", "least", "is_known"),
    [
        ("broker", 370, lambda name: name in BROKER_CONFIGS or kafka_names.without_effect(name)),
        ("topic", 35, TOPIC_CONFIGS.__contains__),
        ("producer", 115, of_client(ProducerSettings.definitions)),
        ("consumer", 115, of_client(ConsumerSettings.definitions)),
        ("admin", 90, of_client(AdminSettings.definitions)),
    ],
)
def test_no_name_of_kafka_is_unknown(kind: str, least: int, is_known: Callable[[str], bool]) -> None:
    assert len(NAMES[kind]) >= least
    assert [name for name in NAMES[kind] if not is_known(name) and name not in ELSEWHERE] == []
