import itertools
import re
import shlex
from importlib.resources import files
from pathlib import Path

import pytest

from barnabas.cli.exit_codes import EXIT_CODES, FAILED, INTERRUPTED, NOT_YET, OK, TERMINATED, USAGE
from barnabas.cli.framework.app import parse
from barnabas.cli.main import COMMANDS, run
from barnabas.cli.records.formats import ESCAPES, TOKENS, compile_format
from barnabas.cli.reference import reference
from barnabas.errors import UsageError

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "run python -m barnabas.cli.reference > docs/cli.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_says_what_it_is_for(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    app = COMMANDS[name].load()
    assert app.summary == COMMANDS[name].summary
    for runnable in app.commands.values():
        assert runnable.summary.endswith(".")
        assert runnable.example
        for parameter in runnable.parameters():
            assert parameter.help or not parameter.flags, f"{name} {runnable.name} {parameter.name}"
    assert run([name, "--help"]) == 0
    assert "--help" in capsys.readouterr().out or "" not in app.commands


def test_the_overview_names_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert run([]) == 2


def runnables() -> list[tuple[str, str]]:
    return [(name, key) for name, command in COMMANDS.items() for key in command.load().commands]


@pytest.mark.parametrize(("name", "key"), runnables())
def test_every_command_takes_json(name: str, key: str) -> None:
    runnable = COMMANDS[name].load().commands[key]
    assert "--json" in {flag for parameter in runnable.parameters() for flag in parameter.flags}


@pytest.mark.parametrize(("name", "key"), runnables())
def test_examples_can_be_typed_as_they_stand(name: str, key: str) -> None:
    runnable = COMMANDS[name].load().commands[key]
    for line in runnable.example.splitlines():
        words = shlex.split(line.replace("<(", "").replace(")", "") if name == "completion" else line)
        _, command, *rest = words[words.index("barnabas") :]
        assert command == name
        if key and rest[: len(key.split())] == key.split():
            rest = rest[len(key.split()) :]
        else:
            assert key in ("", COMMANDS[name].load().default)
        rest = list(itertools.takewhile(lambda word: word not in ("|", ">"), rest))
        values = parse(runnable, f"barnabas {name}", rest)
        assert values.keys() == {parameter.name for parameter in runnable.parameters()}


def test_every_token_of_a_format_is_explained_and_every_explained_one_works() -> None:
    text = PAGE.read_text()
    for token in TOKENS:
        assert f"| `{token}` |" in text
        compile_format(token)
    for escape in ESCAPES:
        assert f"| `{escape}` |" in text
        compile_format(escape.replace("HH", "41"))
    with pytest.raises(UsageError) as refused:
        compile_format("%q")
    known = re.findall(r"%\S", str(refused.value).partition("use ")[2])
    assert set(known) == set(TOKENS)


def test_the_exit_codes_are_those_of_the_table() -> None:
    assert [OK, FAILED, USAGE, NOT_YET, INTERRUPTED, TERMINATED] == [0, 1, 2, 75, 130, 143]
    assert list(EXIT_CODES) == [0, 1, 2, 75, 130, 143]
    for code in EXIT_CODES:
        assert f"\n| {code} | " in PAGE.read_text()


def test_the_page_is_in_the_package() -> None:
    assert (files("barnabas.cli") / "reference.md").read_text() == PAGE.read_text()
