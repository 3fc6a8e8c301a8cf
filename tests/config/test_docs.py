"""The page of settings and the help of the command line."""

from pathlib import Path

from barnabas.config import docs


def test_the_page_of_settings_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text() == docs.render_markdown(), "run: python -m barnabas.config.docs > docs/settings.md"


def test_help_names_every_setting() -> None:
    text = docs.render_help()
    assert "  log.segment.bytes (int, default 1073741824)  [14,...]" in text
