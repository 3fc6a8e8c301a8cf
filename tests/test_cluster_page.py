"""The promises of docs/cluster.md: each names tests, and these exist."""

import ast
import re

import pytest

from code_blocks import ROOT

PAGE = (ROOT / "docs" / "cluster.md").read_text()
PROMISES = re.findall(r"^- (.+?)(?=^- |^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: " ".join(promise.split()[:6]))
def test_every_promise_names_tests_that_exist(promise: str) -> None:
    named = NAMED.findall(promise)
    assert named, promise
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name.startswith("test_")
        assert name in functions, f"{path} has no {name}"


def test_the_page_has_promises() -> None:
    assert len(PROMISES) > 20
