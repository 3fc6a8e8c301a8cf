"""Modules at their first use, in a process without a free descriptor, or without memory for them."""

import errno
import subprocess
import sys
from types import ModuleType

import pytest

from barnabas import late_imports
from barnabas.late_imports import import_late

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
