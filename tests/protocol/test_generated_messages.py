"""The message classes are what tools/generate_messages.py makes of the installed schemas."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("kio.index", reason="kio is a development dependency")

ROOT = Path(__file__).parents[2]


def test_messages_are_up_to_date(monkeypatch):
    spec = importlib.util.spec_from_file_location("generate_messages", ROOT / "tools/generate_messages.py")
    generator = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "generate_messages", generator)
    spec.loader.exec_module(generator)
    stale = [name for name, text in generator.render_all().items() if (generator.OUT / name).read_text() != text]
    assert stale == [], "run `python tools/generate_messages.py`"
