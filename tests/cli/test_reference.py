from pathlib import Path

import pytest

from barnabas.cli.main import COMMANDS, run
from barnabas.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "run python -m barnabas.cli.reference > docs/cli.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_says_what_it_is_for(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    app = COMMANDS[name].load()
    assert app.summary == COMMANDS[name].summary
    for runnable in app.commands.values():
        assert runnable.summary.endswith(".")
        for parameter in runnable.parameters():
            assert parameter.help or not parameter.flags, f"{name} {runnable.name} {parameter.name}"
    assert run([name, "--help"]) == 0
    assert "--help" in capsys.readouterr().out or "" not in app.commands


def test_the_overview_names_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert run([]) == 2
