from typing import Annotated, Any

import pytest

from barnabas.cli.app import App, Argument, Option, WrongUsage


@pytest.fixture
def calls() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def app(calls: list[dict[str, Any]]) -> App:
    app = App("Things.")

    @app.command()
    def make(
        names: Annotated[list[str], Argument("NAME", "What to make.")],
        count: Annotated[int, Option("--count", "-c", minimum=1, maximum=9, help="How many.")] = 3,
        kind: Annotated[str, Option("--kind", choices=("a", "b"))] = "a",
        tag: Annotated[list[str] | None, Option("--tag")] = None,
        level: Annotated[float, Option("--level", environment="THINGS_LEVEL")] = 1.5,
        dry_run: Annotated[bool, Option()] = False,
    ) -> int:
        """Make things.

        At length.
        """
        calls.append({"names": names, "count": count, "kind": kind, "tag": tag, "level": level, "dry_run": dry_run})
        return 4

    return app


def test_defaults_and_the_return_value(app: App, calls: list[dict[str, Any]]) -> None:
    assert app.run("things", ["make", "x"]) == 4
    assert calls == [{"names": ["x"], "count": 3, "kind": "a", "tag": None, "level": 1.5, "dry_run": False}]


def test_options_may_stand_between_arguments(app: App, calls: list[dict[str, Any]]) -> None:
    app.run("things", ["make", "x", "-c", "5", "y", "--tag", "1", "--tag=2", "--kind", "b", "--dry-run"])
    assert calls[0] == {"names": ["x", "y"], "count": 5, "kind": "b", "tag": ["1", "2"], "level": 1.5, "dry_run": True}


def test_values_may_begin_with_a_dash(app: App, calls: list[dict[str, Any]]) -> None:
    app.run("things", ["make", "--tag", "-1h", "--level", "-2", "--tag", "--x", "--", "-y"])
    assert (calls[0]["tag"], calls[0]["level"], calls[0]["names"]) == (["-1h", "--x"], -2.0, ["-y"])
    app.run("things", ["make", "x", "-c5"])
    assert calls[1]["count"] == 5
    with pytest.raises(WrongUsage, match="expected one argument"):
        app.run("things", ["make", "x", "--tag", "--count", "1"])


def test_the_environment_is_weaker_than_the_command_line(
    app: App, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THINGS_LEVEL", "2.5")
    app.run("things", ["make", "x"])
    app.run("things", ["make", "x", "--level", "3"])
    assert [call["level"] for call in calls] == [2.5, 3.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["make", "x", "--cont", "1"], "no option --cont; did you mean --count?"),
        (["make", "x", "-c", "0"], "0 is below 1"),
        (["make", "x", "-c", "10"], "10 is above 9"),
        (["make", "x", "-c", "many"], "invalid whole number value"),
        (["make", "x", "--kind", "c"], "'c' is none of a, b"),
        (["make", "--dry-run"], "required: NAME"),
        (["mke"], "no command 'mke'; did you mean make?"),
    ],
)
def test_wrong_usage_is_one_line(app: App, arguments: list[str], words: str) -> None:
    with pytest.raises(WrongUsage) as raised:
        app.run("things", arguments)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "--help`" in str(raised.value)


def test_help_goes_to_standard_output(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run("things", ["make", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Make things." in text
    assert "--count" in text
    assert "NAME" in text
    assert app.run("things", ["--help"]) == 0
    assert "make  Make things." in capsys.readouterr().out


def test_nothing_where_something_is_needed_shows_the_help_and_fails(
    app: App, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run("things", []) == 2
    assert app.run("things", ["make"]) == 2
    assert "NAME" in capsys.readouterr().err
