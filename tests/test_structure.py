"""The structure of the source tree: no import circles, small folders, docstrings that say who does what."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
BENCHMARKS = ROOT / "bench"
FILES_MAX = 15
"""How many modules a folder may have besides its `__init__`."""
GENERATED = SOURCES / "barnabas" / "protocol" / "messages"
"""One module for each API of Kafka, written by a tool: nobody looks for a file there."""
RIDDLES = re.compile(r"(What|Whatever|Who|Whoever|Whom|How|Where|When|Why|See the module)\b")
"""Openings that leave the reader asking who does what."""


def modules() -> dict[str, Path]:
    """Returns the path of each module by its dotted name."""
    found = {}
    for path in SOURCES.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports() -> dict[str, set[str]]:
    """Returns the modules that each module imports, for type checkers only and within functions included."""
    paths = modules()
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: imports are absolute"
                inner = {f"{node.module}.{each.name}" for each in node.names} & paths.keys()
                found |= inner or {str(node.module)}
        graph[name] = (found & paths.keys()) - {name}
    graph["barnabas"] = set()  # hands the public names on when they are asked for
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Returns the sets of modules that import each other in a loop (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = lowest[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == index[name]:
            position = stack.index(name)
            if len(stack) - position > 1:
                found.append(sorted(stack[position:]))
            del stack[position:]

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"]]


def test_no_modules_import_each_other() -> None:
    assert not circles(imports())


def test_folders_stay_small() -> None:
    paths = [*modules().values(), *BENCHMARKS.rglob("*.py")]
    folders = {path.parent for path in paths} - {GENERATED}
    sizes = {folder: sum(path.name != "__init__.py" for path in folder.glob("*.py")) for folder in folders}
    assert not {str(folder): size for folder, size in sizes.items() if size > FILES_MAX}


def test_every_package_says_what_it_is_for() -> None:
    packages = (path for path in modules().values() if path.name == "__init__.py")
    assert not [str(path) for path in packages if not ast.get_docstring(ast.parse(path.read_text()))]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring, those of attributes included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def test_docstrings_say_who_does_what() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in modules().values()
        if path.parent != GENERATED
        for line, text in docstrings(path)
        if RIDDLES.match(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_pages_name_files_that_exist(page: str) -> None:
    paths = [*ROOT.glob("*.py")]
    for folder in ("bench", "docs", "src", "tests", "tools"):
        paths += [path for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    names = [f"/{path.relative_to(ROOT)}" for path in paths]
    named = re.findall(r"`([\w./]+(?:\.py|/))`", (ROOT / page).read_text())
    assert len(named) > 10
    missing = [name for name in named if not any(f"/{name}" in each for each in names)]
    assert missing == (["dist/"] if page == "CONTRIBUTING.md" else [])  # what `make wheels` fills


def test_the_picture_is_of_this_structure() -> None:
    compared = "PICTURE.read_text() == draw(), 'run python tools/draw_structure.py'"
    code = f"from draw_structure import PICTURE, draw; assert {compared}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools", check=True)
