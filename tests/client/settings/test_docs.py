"""The page of all settings."""

from pathlib import Path

from barnabas.client.settings import docs


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "client-settings.md"
    command = "python -m barnabas.client.settings.docs > docs/client-settings.md"
    assert page.read_text() == docs.render_markdown(), f"run: {command}"
