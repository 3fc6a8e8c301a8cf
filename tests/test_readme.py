"""The README from top to bottom: each of its blocks, as it stands there, in one go against one broker."""

import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.testing.ports import ReservedPort
from code_blocks import FILE_NAME, ROOT, Block, blocks_of, environment_in

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


class Reader:
    """Does in a directory what the README tells its reader to do, and keeps what was shown for each command."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._port = ReservedPort()
        self.address = f"127.0.0.1:{self._port.number}"
        self.shown: dict[str, str] = {}
        self.servers: list[subprocess.Popen[str]] = []
        self.environment = {
            **environment_in(directory, self.address),
            "BARNABAS_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        }

    def follow(self, block: Block) -> None:
        text = block.text.replace("127.0.0.1:9092", self.address)
        if block.language == "console":
            for command in block._replace(text=text).commands:
                self.run(command)
        elif name := FILE_NAME.match(text):
            (self.directory / name[1]).write_text(text)
        else:
            assert block.language == "python", f"line {block.line}: nobody knows how to run {block.language}"
            self.shown[block.section] = self.output_of([sys.executable, "-c", text], f"the block at line {block.line}")

    def run(self, command: str) -> None:
        first, *rest = shlex.split(command)
        if first == "pip":
            assert all(extra in EXTRAS for extra in re.findall(r"\[(\w+)\]", command))
        elif first == "make":  # these two take minutes, and the second one runs this test
            assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
        elif rest[0] == "serve":
            self.serve(command)
        else:
            self.shown[command] = self.output_of(["sh", "-c", command], command)

    def serve(self, command: str) -> None:
        server = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.servers.append(server)
        assert server.stdout is not None
        assert "is ready" in server.stdout.readline()

    def output_of(self, arguments: list[str], what: str) -> str:
        done = subprocess.run(
            arguments,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, f"{what}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def close(self) -> None:
        """Presses Ctrl-C where a broker is in the foreground."""
        for server in self.servers:
            server.send_signal(signal.SIGINT)
        assert [server.wait() for server in self.servers] == [0] * len(self.servers)
        for server in self.servers:
            assert server.stdout is not None
            server.stdout.close()
        self._port.release()


@contextmanager
def reader_in(directory: Path) -> Iterator[Reader]:
    reader = Reader(directory)
    try:
        yield reader
    finally:
        reader.close()


def test_the_readme_runs_from_top_to_bottom(tmp_path: Path) -> None:
    blocks = [block for block in blocks_of("README.md") if block.section != "With Spark"]
    with reader_in(tmp_path) as reader:
        for block in blocks:
            reader.follow(block)
    shown = {command.partition(" --")[0]: text for command, text in reader.shown.items()}
    assert re.fullmatch(r'orders-\d@0 k1 \{"total": 12\}\n', shown["barnabas consume orders"])
    (dumped,) = (text for command, text in shown.items() if command.startswith("barnabas dump-log"))
    assert '{"total": 12}' in dumped
    assert "lag 0" in shown["barnabas groups describe billing"]
    assert "all is well" in shown["barnabas doctor"]
    assert re.search(r"\b2 passed", shown["pytest test_shop.py"])
    assert len(reader.servers) == 1


def test_the_first_commands_of_the_site_run_as_well(tmp_path: Path) -> None:
    with reader_in(tmp_path) as reader:
        for block in blocks_of("docs/index.md"):
            reader.follow(block)
    assert reader.shown["barnabas consume orders --exit"] == '{"total": 12}\n'


@pytest.mark.spark
@pytest.mark.smoke
def test_the_readmes_block_for_spark_runs_after_those_above_it(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    wanted = [block for block in blocks_of("README.md") if block.section in ("From Python", "With Spark")]
    serve = next(block for block in blocks_of("README.md") if "barnabas serve" in block.text)
    with reader_in(tmp_path) as reader:
        for block in [serve, *wanted]:
            reader.follow(block)
    assert reader.shown["With Spark"] == "1002 payments\n"
