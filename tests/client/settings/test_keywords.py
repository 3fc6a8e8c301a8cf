"""The keyword arguments that editors and type checkers know."""

import runpy
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from barnabas.client.settings import AdminSettings, ConsumerSettings, ProducerSettings
from barnabas.client.settings.keywords import AdminKeywords, ConsumerKeywords, ProducerKeywords


def test_the_keywords_for_type_checkers_are_up_to_date() -> None:
    """`Producer(...)` and the like complete, and are checked, by what that module says."""
    root = Path(__file__).parents[3]
    made = runpy.run_path(str(root / "tools" / "generate_client_keywords.py"))
    module = root / "src" / "barnabas" / "client" / "settings" / "keywords.py"
    assert module.read_text() == made["render"](), "run: python tools/generate_client_keywords.py --write"


@pytest.mark.parametrize(
    ("settings", "keywords", "parameters"),
    [
        (AdminSettings, AdminKeywords, set()),
        (ProducerSettings, ProducerKeywords, set()),
        (ConsumerSettings, ConsumerKeywords, {"key_deserializer", "value_deserializer"}),
    ],
)
def test_every_setting_is_a_keyword(settings: Any, keywords: Any, parameters: set[str]) -> None:
    callbacks = {"on_assigned", "on_revoked", "on_lost"} if settings is ConsumerSettings else set()
    named = {setting.attribute for setting in settings.definitions}
    assert set(get_type_hints(keywords)) | parameters == named | callbacks
