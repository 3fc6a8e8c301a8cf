import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.completion import BASH, FISH, ZSH, find_candidates
from barnabas.cli.main import COMMANDS
from cli.conftest import Run


def words(*before: str) -> list[str]:
    return [candidate.word for candidate in find_candidates(before)]


def test_commands_and_options_are_completed() -> None:
    assert words("") == list(COMMANDS)
    assert words("to") == ["topics"]
    assert words("topics", "de") == ["delete", "describe"]
    assert words("topic", "create", "t", "--part") == ["--partitions"]
    assert words("consume", "t", "--key-as", "he") == ["hex"]
    assert words("produce", "t", "-z", "") == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert words("configs", "describe", "") == ["topic", "broker", "group"]
    assert "--broker" in words("log-dirs", "--")
    assert words("nonsense", "") == words("produce", "t", "--file", "x") == words("completion", "bash", "x") == []


def test_names_in_the_cluster_are_completed(in_process: Run, bootstrap: str, name: str) -> None:
    in_process("topics", "create", name)
    assert words("consume", "-b", bootstrap, name[:-1]) == [name]
    assert words("groups", "reset-offsets", "g", "-b", bootstrap, "--topic", name[:-1]) == [name]
    in_process("consume", name, "-g", name, "-e")
    assert words("groups", "describe", f"--bootstrap={bootstrap}", name[:-1]) == [name]
    assert words("consume", "-b", "127.0.0.1:1", "") == []


def test_profiles_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "barnabas" / "profiles").mkdir(parents=True)
    (tmp_path / "barnabas" / "profiles" / "dev.properties").touch()
    assert words("topics", "list", "--profile", "") == ["dev"]


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """`barnabas` as a file that can be called."""
    path = tmp_path / "barnabas"
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m barnabas "$@"\n')
    path.chmod(0o755)
    return path


def test_bash_asks_for_candidates(command: Path) -> None:
    line = f"COMP_WORDS=({command} topics de) COMP_CWORD=2; _barnabas {command}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "-c", f"source <({command} completion bash); {line}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["delete", "describe"]
    option = f'COMP_WORDS=({command} consume t --key-a) COMP_CWORD=3; _barnabas {command}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{BASH}\n{option}"], capture_output=True, text=True, check=True)
    assert done.stdout == "--key-as\n"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_asks_for_candidates(command: Path) -> None:
    shown = '_describe() { print -l -- "${(@P)3}" }; _files() { print files }'
    line = (
        f"words=({command} topics de) CURRENT=3; _barnabas; words=({command} produce t --file x) CURRENT=5; _barnabas"
    )
    script = f"autoload -U compinit; compinit -u -D; {ZSH}\n{shown}\n{line}"
    done = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True, check=True)
    meanings = [f"{name}:{COMMANDS['topics'].load().commands[name].summary}" for name in ("delete", "describe")]
    assert done.stdout.splitlines() == [*meanings, "files"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_asks_for_candidates(command: Path) -> None:
    line = f"{FISH}\nset -p PATH {command.parent}; complete -C 'barnabas topics de'"
    done = subprocess.run(["fish", "-Nc", line], capture_output=True, text=True, check=True)
    assert [row.split("\t")[0] for row in done.stdout.splitlines()] == ["delete", "describe"]
