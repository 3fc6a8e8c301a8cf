"""What mypyc makes of a module is what Python makes of it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def kernels() -> dict[str, ast.Module]:
    """The compiled modules, as setup.py lists them."""
    setup = ast.parse((ROOT / "setup.py").read_text())
    lists = [
        node for node in setup.body if isinstance(node, ast.Assign | ast.AugAssign) and "KERNELS" in ast.dump(node)
    ]
    found: dict[str, list[str]] = {}
    exec(compile(ast.Module(lists, []), "setup.py", "exec"), found)  # noqa: S102 - setup.py itself would build
    return {path: ast.parse((ROOT / path).read_text()) for path in found["KERNELS"]}


def bound_twice(function: ast.AST, compiled: set[str]) -> Iterator[tuple[str, int]]:
    """Yields the names to which a function binds an exception of a compiled class, and another one as well."""
    bound: dict[str, set[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler) and node.name is not None and node.type is not None:
            kinds = bound.setdefault(node.name, set())
            kinds.add(ast.unparse(node.type))
            if len(kinds) > 1 and not compiled.isdisjoint(kinds):
                yield node.name, node.lineno


def problems(modules: dict[str, ast.Module]) -> list[str]:
    compiled = {node.name for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return [
        f"{path}:{line}: {name}"
        for path, tree in modules.items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, line in bound_twice(function, compiled)
    ]


def test_no_name_has_exceptions_of_a_compiled_class_and_of_another() -> None:
    """mypyc gives a local name one type. Where that is a compiled class, an `except Exception` with the same name ends
    in a TypeError in place of its body."""
    modules = kernels()
    assert len(modules) > 70
    assert problems(modules) == []


@pytest.mark.parametrize(("second", "is_found"), [("error", True), ("other", False)])
def test_such_a_name_would_be_found(second: str, is_found: bool) -> None:
    source = f"""
class Refused(OSError): ...

def act() -> None:
    try:
        pass
    except Refused as error:
        raise
    except Exception as {second}:
        raise
"""
    assert bool(problems({"module.py": ast.parse(source)})) == is_found
