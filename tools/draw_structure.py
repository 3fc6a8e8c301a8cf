"""Draws docs/structure.svg: the packages of Barnabas as rooms, one floor for each layer that pyproject.toml contracts.

A room shows the first sentence of its package and the folders in it. Run `python tools/draw_structure.py` after
a change of a package or a layer; a test compares the picture with the code.
"""

import ast
import textwrap
import tomllib
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ROOT / "src" / "barnabas"
PICTURE: Final = ROOT / "docs" / "structure.svg"

WIDTH: Final = 1180
MARGIN: Final = 20
GAP: Final = 14
TITLE_HEIGHT: Final = 30
LINE_HEIGHT: Final = 16
LETTER_WIDTH: Final = 6.7
GROUND: Final = ("printable", "clock", "errors", "types", "version")
"""Modules that all layers share. They are drawn as one room."""


def layers() -> list[list[str]]:
    """Returns the layers from the top to the bottom, each with its packages, as the import contract names them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each["type"] == "layers")
    floors = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    return [floor for floor in floors if not set(floor) <= set(GROUND)]


def summary(package: str) -> str:
    """Returns the first sentence of the package's docstring."""
    module = SOURCES / package / "__init__.py"
    if not module.exists():
        module = SOURCES / f"{package}.py"
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    sentence = " ".join(text.split("\n\n")[0].split())
    end = sentence.find(". ")
    return (sentence if end < 0 else sentence[: end + 1]).replace("`", "")


def folders(package: str) -> str:
    """Returns the names of the folders in a package, as one line; empty if it has none."""
    found = (each.parent.name for each in (SOURCES / package).glob("*/__init__.py"))
    return "  ".join(f"{name}/" for name in sorted(found))


def room(x: float, y: float, width: float, height: float, title: str, lines: list[str], inner: list[str]) -> list[str]:
    place = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}"'
    box = f'<rect {place} rx="6" fill="#f4f1e8" stroke="#7a6f57"/>'
    at = f'x="{x + 12:.0f}" y="{y + 21:.0f}"'
    parts = [box, f'<text {at} font-weight="bold" font-size="15">{escape(title)}</text>']
    baseline = y + TITLE_HEIGHT + 9
    for line in lines:
        parts.append(f'<text x="{x + 12:.0f}" y="{baseline:.0f}" font-size="12">{escape(line)}</text>')
        baseline += LINE_HEIGHT
    for line in inner:
        parts.append(f'<text x="{x + 12:.0f}" y="{baseline:.0f}" font-size="12" fill="#2d5f8a">{escape(line)}</text>')
        baseline += LINE_HEIGHT
    return parts


def draw() -> str:
    """Returns the picture as SVG text."""
    body: list[str] = []
    y = 46.0
    for floor in layers():
        width = (WIDTH - 2 * MARGIN - GAP * (len(floor) - 1)) / len(floor)
        letters = int((width - 24) / LETTER_WIDTH)
        texts = [textwrap.wrap(summary(package), letters) for package in floor]
        inner = [textwrap.wrap(folders(package), letters) for package in floor]
        height = TITLE_HEIGHT + LINE_HEIGHT * max(len(a) + len(b) for a, b in zip(texts, inner, strict=True)) + 8
        for index, package in enumerate(floor):
            x = MARGIN + index * (width + GAP)
            title = f"{package}/" if (SOURCES / package).is_dir() else f"{package}.py"
            body += room(x, y, width, height, title, texts[index], inner[index])
        y += height + GAP
    names = "  ".join(f"{name}.py" for name in GROUND)
    body += room(MARGIN, y, WIDTH - 2 * MARGIN, TITLE_HEIGHT + 4, names, [], [])
    y += TITLE_HEIGHT + 4 + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0f}" font-family="sans-serif" fill="#222">'
        f'<rect width="{WIDTH}" height="{y:.0f}" fill="white"/>'
        f'<text x="{MARGIN}" y="30" font-size="15">Each floor imports from the floors below it only; '
        f"rooms on one floor do not know each other.</text>"
    )
    return "\n".join([head, *body, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw())
    print(f"written: {PICTURE.relative_to(ROOT)}")
