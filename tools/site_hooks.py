"""Hooks of mkdocs: pages in the repository's root belong to the site, and code is highlighted."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).resolve().parents[1]
FROM_ROOT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")


def on_files(files: Files, config: Any) -> Files:
    for name in FROM_ROOT:
        if (ROOT / name).exists():
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    files.append(
        File.generated(config, "code.css", content=HtmlFormatter(style="default").get_style_defs(".codehilite"))
    )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites links between docs and the root to the pages of the site."""
    if page.file.src_uri in FROM_ROOT:
        return markdown.replace("](docs/", "](")
    for name in FROM_ROOT:
        markdown = markdown.replace(f"](../{name}", f"]({name}")
    return markdown
