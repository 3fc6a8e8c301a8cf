"""docs/compatibility.md says what the code does."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from barnabas.protocol.apis import SERVED

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_compatibility", ROOT / "tools/generate_compatibility.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(generator: ModuleType) -> None:
    assert (ROOT / "docs/compatibility.md").read_text() == generator.render(), (
        "run: python tools/generate_compatibility.py --write"
    )


def test_each_api_is_served_or_has_its_area(generator: ModuleType) -> None:
    table = {api.key: api for api in generator.KAFKA_APIS}
    assert SERVED.keys() <= table.keys()
    for key, api in table.items():
        assert (key in SERVED) != bool(api.area), api
        if key in SERVED:
            assert tuple(SERVED[key]) == (api.first, api.last), f"{api.name}: not the versions of Kafka"
