"""The table of a broker's settings agrees with itself, and with what Kafka's clients expect of it."""

import pytest

from barnabas.config.broker_settings import BROKER_CONFIGS, GROUPS, SYNONYMS
from barnabas.config.definitions import Setting
from barnabas.config.topic import BROKER_DEFAULTS

SETTINGS = [setting for group in GROUPS.values() for setting in group]


def test_each_name_is_there_once() -> None:
    names = [setting.name for setting in SETTINGS]
    assert len(set(names)) == len(names)
    assert set(names) == set(BROKER_CONFIGS.names())
    assert len({setting.attribute for setting in SETTINGS}) == len(names)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_default_keeps_its_own_rule_and_is_read_back(setting: Setting) -> None:
    text = setting.format(setting.default)
    if text is not None:
        assert setting.parse(text) == setting.default
    assert setting.doc.endswith((".", ")"))


def test_each_of_a_settings_units_has_the_same_order_of_precedence() -> None:
    for name, units in SYNONYMS.items():
        assert name in units
        assert set(units) <= set(BROKER_CONFIGS.names())
        assert {SYNONYMS[other] for other in units if other in SYNONYMS} == {units}


def test_defaults_of_topics_may_change_while_the_broker_runs() -> None:
    settings = {setting.name: setting for setting in GROUPS["Defaults of topic settings"]}
    assert settings.keys() == BROKER_DEFAULTS.keys()
    for name, setting in settings.items():
        assert BROKER_CONFIGS[name] is setting
        assert f"`{BROKER_DEFAULTS[name].name}`" in setting.doc
