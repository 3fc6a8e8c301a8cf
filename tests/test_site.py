"""The documentation as a site."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from code_blocks import ROOT


def test_the_readmes_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)[^)]*\)", (ROOT / "README.md").read_text())
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_site_leads_to_every_decision() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in (ROOT / "docs/decisions").glob("*.md") if f"decisions/{page.name}" not in nav] == []


def test_the_site_is_built_without_a_broken_link_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    pages = [page.read_text() for page in tmp_path.rglob("*.html")]
    assert len(pages) > len(list((ROOT / "docs").glob("*.md")))
    loaded = re.compile(r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//|<link[^>]*href="(?:https?:)?//')
    assert [found[0] for page in pages if (found := loaded.search(page))] == []
