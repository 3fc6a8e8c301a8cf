"""No code of a broker goes on as if nothing were when its memory has run out in the middle of something."""

import ast
import threading
from collections.abc import Iterator

import pytest

from barnabas import out_of_memory
from barnabas.out_of_memory import end_if_out_of_memory
from barnabas.thread_pool import ThreadPool
from broker_sources import broker_sources

ENDS = {"end_if_out_of_memory", "report", "call_exception_handler"}
"""Functions that end a broker whose memory has run out: `report` is a FailureLog's."""
HARMLESS = {
    "broker/produce/batch_validator.py": {"validate": "the batch is refused, and nothing has changed yet"},
    "broker/supervisor/child_process.py": {"_be_child": "the child ends"},
    "connection/drivers/aio.py": {
        "_connect": "a connection is not made, and tried again",
        "look_up": "a connection is not made, and tried again",
        "_connect_to": "a connection is not made, and tried again",
    },
    "log/cleaner/cleaner_worker.py": {"_work": "another process, whose result is not taken"},
}
"""Functions that go on, with the reasons."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The errors for which the process would have been ended."""
    errors: list[object] = []
    monkeypatch.setattr(out_of_memory, "_end", errors.append)
    return errors


def goes_on(source: str) -> Iterator[tuple[str, int]]:
    """Yields the functions and lines of handlers that take a MemoryError with any other error, and go on."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    ends = ENDS | {function.name for function in functions if called(function) & ENDS}

    def visit(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                names = caught(handler)
                if "MemoryError" in names:
                    break
                if names & {"Exception", "BaseException", ""} and not called(handler) & ends and not raises(handler):
                    yield function, handler.lineno
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function)

    return visit(tree, "")


def caught(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {""}
    return {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}


def called(node: ast.AST) -> set[str]:
    functions = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    names = {each.id for each in functions if isinstance(each, ast.Name)}
    return names | {each.attr for each in functions if isinstance(each, ast.Attribute)}


def raises(handler: ast.ExceptHandler) -> bool:
    """Whether the same error leaves the handler in any case."""
    leaves = [node for node in ast.walk(handler) if isinstance(node, ast.Return | ast.Continue | ast.Break)]
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None and not leaves


@pytest.mark.parametrize(
    ("handler", "is_told"),
    [
        ("except Exception as error:\n  log(error)", True),
        ("except:\n  pass", True),
        ("except (OSError, Exception):\n  pass", True),
        ("except BaseException as error:\n  if error.args:\n    return\n  raise", True),
        ("except Exception as error:\n  raise Other from error", True),
        ("except OSError as error:\n  log(error)", False),
        ("except BaseException:\n  undo()\n  raise", False),
        ("except MemoryError:\n  close()\n except Exception as error:\n  log(error)", False),
        ("except Exception as error:\n  self.failures.report('x', error)", False),
        ("except Exception as error:\n  end_if_out_of_memory(error)", False),
        ("except Exception as error:\n  self._fail(error)\ndef _fail(error):\n end_if_out_of_memory(error)", False),
    ],
)
def test_what_goes_on_is_found(handler: str, is_told: bool) -> None:
    assert [name for name, _ in goes_on(f"def f():\n try:\n  g()\n {handler}")] == ["f"] * is_told


def test_no_handler_in_a_broker_goes_on_without_memory() -> None:
    sources = list(broker_sources("thread_pool.py"))
    assert len(sources) > 200
    found: dict[str, set[str]] = {}
    for name, source in sources:
        for function, line in goes_on(source):
            assert function in HARMLESS.get(name, {}), f"{name}:{line}: {function} goes on after a MemoryError"
            found.setdefault(name, set()).add(function)
    assert found == {name: {*functions} for name, functions in HARMLESS.items()}, "entries that are out of date"


def test_a_broker_in_another_programs_process_ends_nothing() -> None:
    end_if_out_of_memory(MemoryError())


def test_where_no_memory_is_left_for_the_errors_python_says_so_in_another_way(ended: list[object]) -> None:
    given_up = RecursionError("maximum recursion depth exceeded while normalizing an exception")
    given_up.__context__ = MemoryError()
    end_if_out_of_memory(given_up)
    assert ended == [given_up]


def test_other_errors_end_nothing(ended: list[object]) -> None:
    for error in (ValueError("a bug"), OSError(12, "Cannot allocate memory"), RecursionError("a bug"), None):
        end_if_out_of_memory(error)
    assert ended == []


def test_a_call_in_a_thread_ends_the_process_before_anybody_hears_of_it(ended: list[object]) -> None:
    heard = threading.Event()
    before: list[bool] = []
    error = MemoryError()

    def end(error: object) -> None:
        before.append(not heard.is_set())
        ended.append(error)

    def fail() -> None:
        raise error

    out_of_memory.end_with(end)
    with ThreadPool(1, "test") as pool:
        done = pool.submit(fail)
        done.add_done_callback(lambda _: heard.set())
        assert done.exception(60) is error
    assert (ended, before) == ([error], [True])
