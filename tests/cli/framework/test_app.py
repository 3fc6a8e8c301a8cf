from typing import Annotated, Any, NamedTuple

import pytest

from barnabas.cli.framework.app import App, Argument, Option, WrongUsage
from barnabas.errors import UsageError


def refuse_bad(name: str) -> None:
    if name == "bad":
        raise UsageError("bad is taken")


@pytest.fixture
def calls() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def files() -> list[str | None]:
    return []


@pytest.fixture
def app(calls: list[dict[str, Any]], files: list[str | None]) -> App:
    app = App("Things.")

    @app.command(example="things make x")
    def make(
        names: Annotated[list[str], Argument("NAME", "What to make.", check=refuse_bad)],
        count: Annotated[int, Option("--count", "-c", minimum=1, maximum=9, help="How many.")] = 3,
        kind: Annotated[str, Option("--kind", choices=("a", "b"))] = "a",
        tag: Annotated[list[str] | None, Option("--tag")] = None,
        level: Annotated[float, Option("--level", environment="THINGS_LEVEL")] = 1.5,
        file: Annotated[str | None, Option("--file", takes_bytes=True)] = None,
        dry_run: Annotated[bool, Option()] = False,
    ) -> int:
        """Make things.

        At length.
        """
        calls.append({"names": names, "count": count, "kind": kind, "tag": tag, "level": level, "dry_run": dry_run})
        files.append(file)
        return 4

    @app.command()
    def tidy(dry_run: Annotated[bool, Option()] = False) -> None:
        """Tidy things up."""

    @app.command()
    def move(name: Annotated[str, Argument("NAME")]) -> None:
        """Move a thing."""

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
    with pytest.raises(WrongUsage, match="--tag: the value TEXT is missing"):
        app.run("things", ["make", "x", "--tag", "--count", "1"])


def test_the_environment_is_weaker_than_the_command_line(
    app: App, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THINGS_LEVEL", "2.5")
    app.run("things", ["make", "x"])
    app.run("things", ["make", "x", "--level", "3"])
    assert [call["level"] for call in calls] == [2.5, 3.0]


def test_the_name_of_a_file_may_be_bytes(app: App, files: list[str | None]) -> None:
    app.run("things", ["make", "x", "--file", "\udcff"])
    assert files == ["\udcff"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["make", "x", "--cont", "1"], "no option --cont; did you mean --count?"),
        (["make", "x", "-c", "0"], "0 is below 1"),
        (["make", "x", "-c", "10"], "10 is above 9"),
        (["make", "x", "-c", "many"], "--count: 'many' is not a whole number"),
        (["make", "x", "--kind", "c"], "'c' is none of a, b"),
        (["make", "\udcff"], "NAME: '\\udcff' is not UTF-8"),
        (["make", "x", "--tag", "\udcff"], "--tag: '\\udcff' is not UTF-8"),
        (["make", "bad"], "NAME: bad is taken"),
        (["make", "x", "--level", "inf"], "--level: 'inf' is not a number"),
        (["make", "--dry-run"], "NAME is missing, as in `things make x`"),
        (["make"], "NAME is missing, as in `things make x`"),
        (["--dry-run"], "COMMAND is missing; commands are make, tidy, move"),
        ([], "COMMAND is missing; commands are make, tidy, move"),
        (["mke"], "no command 'mke'; did you mean make?"),
        (["tidy", "nosuch"], "unexpected argument 'nosuch'; see `things tidy --help`"),
        (["tidy", "no such", "--dry-run"], "unexpected argument 'no such'; see"),
        (["tidy", "--", "-x"], "unexpected argument '-x'; see"),
        (["tidy", "-x", "nosuch"], "there is no option -x; see"),
        (["move", "a", "b"], "unexpected argument 'b'; see `things move --help`"),
        (["move", "a", "--", "--b"], "unexpected argument '--b'; see"),
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


def test_help_shows_how_to_call_it_with_an_example(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    app.run("things", ["make", "--help"])
    text = capsys.readouterr().out
    assert "usage: things make NAME... [OPTIONS]" in text
    assert "-c, --count N " in text
    assert text.endswith("example:\n  things make x\n")


def test_singular_and_plural_both_do(app: App, calls: list[dict[str, Any]]) -> None:
    app.run("things", ["makes", "x", "--tags", "1", "--counts=2"])
    assert (calls[0]["tag"], calls[0]["count"]) == (["1"], 2)


class Shared(NamedTuple):
    """Options that commands share."""

    place: Annotated[str, Option("--place", help="Where.")] = "here"
    depth: Annotated[int, Option("--depth", help="How deep.")] = 1


DEEPER = Shared(depth=2)


def test_a_named_tuple_stands_for_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    app, calls = App("Things."), []

    @app.command("")
    def look(name: Annotated[str, Argument("NAME")], shared: Shared = DEEPER) -> None:
        """Look."""
        calls.append((name, shared))

    app.run("look", ["x", "--place", "there"])
    assert calls == [("x", Shared("there", 2))]
    app.run("look", ["--help"])
    assert "shared options:\n  --place TEXT" in capsys.readouterr().out


def test_a_group_may_have_a_command_for_lines_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    app, calls = App("Things.", default="list"), []

    @app.command("list")
    def list_things(long: Annotated[bool, Option("--long")] = False) -> None:
        """List things."""
        calls.append(long)

    for arguments in ([], ["--long"], ["list", "--long"]):
        app.run("things", arguments)
    assert calls == [False, True, True]
    app.run("things", ["--help"])
    assert "Without a COMMAND this is `things list`." in capsys.readouterr().out
