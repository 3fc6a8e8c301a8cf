"""Modules at their first use, in a process without a free descriptor, or without memory for them."""

import ast
import errno
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from barnabas import late_imports
from barnabas.late_imports import import_late
from broker_sources import broker_sources

EARLY = {
    "broker/server.py": {"_open_registry": "at a start"},
    "broker/startup/directory_age.py": {"_of_former_topics": "at a start"},
    "broker/startup/refused_start.py": {"_introduce": "at a start"},
    "broker/startup/registry_age.py": {"image_not_older_than_copies": "at a start"},
    "broker/startup/zookeeper_start.py": {
        **dict.fromkeys(("open_zookeeper_store", "_open", "check_access", "_access", "_tls_context"), "at a start")
    },
    "config/advertise.py": {"address": "imported where the rules are read", "_parse": "at a start"},
    "connection/broker/frame_buffer.py": {"_unwritten": "does without"},
    "records/checksum.py": {"_load": "when it is imported itself"},
}
"""Functions whose import statements are no matter of a running broker, with the reason."""
EXTENSION = "/barnabas/broker/handlers/records/produce.cpython-311-x86_64-linux-gnu.so"
SCRIPT = """
import errno
import os
import resource
import sys
from barnabas.late_imports import keep_descriptor
from barnabas.records.compression import CODECS, compress, decompress

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
if sys.argv[1] == "kept":
    keep_descriptor()

def free():
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError as error:
        assert error.errno == errno.EMFILE
    return taken

taken = free()
for codec in range(1, len(CODECS)):
    assert decompress(codec, compress(codec, b"x" * 1000), 1000) == b"x" * 1000
os.close(taken.pop())
print(len(free()), "is free")
"""


@pytest.mark.parametrize("kept", [True, False])
def test_a_batch_of_a_codec_that_was_not_met_before_finds_its_library(kept: bool) -> None:
    command = [sys.executable, "-c", SCRIPT, "kept" if kept else "not kept"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if kept:
        assert (done.stdout, done.stderr) == ("1 is free\n", "")
    else:
        assert "Error" in done.stderr


def test_a_compiled_module_that_finds_no_memory_is_refused_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> ModuleType:
        text = f"{EXTENSION}: failed to map segment from shared object"
        raise ImportError(text, name=name, path=EXTENSION)

    with monkeypatch.context() as patch:
        patch.setattr(late_imports, "import_module", refuse)
        with pytest.raises(OSError, match="failed to map segment from shared object") as caught:
            import_late("ast")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOMEM, EXTENSION)
    assert import_late("ast").parse


def test_a_module_that_does_not_exist_is_no_matter_of_memory() -> None:
    with pytest.raises(ImportError):
        import_late("barnabas.nothing")


def late(source: str) -> Iterator[tuple[str, int]]:
    """Each function with an import statement, and its line."""

    def visit(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if function and isinstance(child, ast.Import | ast.ImportFrom):
                yield function, child.lineno
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from visit(child, getattr(child, "name", function) if is_function else function)

    return visit(ast.parse(source), "")


def test_a_running_broker_imports_by_the_function_that_keeps_a_descriptor() -> None:
    assert list(late("import a\nclass B:\n def f():\n  if x:\n   import c\n")) == [("f", 5)]
    sources = list(broker_sources("config", "protocol", "records"))
    assert len(sources) > 300
    found: dict[str, set[str]] = {}
    for name, source in sources:
        for function, line in late(source):
            assert function in EARLY.get(name, {}), f"{name}:{line}: {function} needs `import_late`"
            found.setdefault(name, set()).add(function)
    assert found == {name: {*functions} for name, functions in EARLY.items()}, "entries that are out of date"
