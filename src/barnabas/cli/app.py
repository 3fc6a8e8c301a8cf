"""Commands as typed functions: a parameter's annotation says its option, and argparse does the parsing.

    @app.command()
    def create(names: Annotated[list[str], Argument("TOPIC")], count: Annotated[int, Option("-p")] = -1) -> None: ...

Why not typer or click: typer 0.29 imports pydantic when it parses, which made `topics list` take 220 ms against 90 ms
with this module, and the standard library adds nothing to what a test environment has to install.
"""

import argparse
import os
from collections.abc import Callable, Container, Iterable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, NoReturn, Union, get_args, get_origin

from barnabas.errors import UsageError

__all__ = ["App", "Argument", "Option", "Parameter", "WrongUsage", "closest"]

HELP_COLUMN: Final = 30


class WrongUsage(UsageError):
    """The command line cannot be parsed. `command` is what was being called."""

    def __init__(self, command: str, message: str) -> None:
        super().__init__(f"{command}: {message}; see `{command} --help`")


class HelpWanted(Exception):
    """--help was given, or nothing where a command is needed."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Option:
    """A named parameter. Without flags, its name with dashes is the flag."""

    __slots__ = ("choices", "environment", "flags", "help", "maximum", "metavar", "minimum")

    def __init__(
        self,
        *flags: str,
        help: str = "",
        metavar: str | None = None,
        environment: str | None = None,
        choices: Sequence[str] | None = None,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> None:
        self.flags = flags
        self.help = help
        self.metavar = metavar
        self.environment = environment
        self.choices = choices
        self.minimum = minimum
        self.maximum = maximum


class Argument:
    """A positional parameter; a list takes one or more, with a default none or more."""

    __slots__ = ("help", "metavar")

    def __init__(self, metavar: str, help: str = "") -> None:
        self.metavar = metavar
        self.help = help


class Parameter(NamedTuple):
    """One parameter of a command function, taken apart."""

    name: str
    kind: type
    is_list: bool
    required: bool
    default: Any
    spec: Option | Argument

    @property
    def flags(self) -> tuple[str, ...]:
        """Long ones first; empty for positional parameters."""
        if isinstance(self.spec, Argument):
            return ()
        flags = self.spec.flags or ("--" + self.name.replace("_", "-"),)
        return tuple(sorted(flags, key=lambda flag: not flag.startswith("--")))

    @property
    def metavar(self) -> str:
        if self.spec.metavar:
            return self.spec.metavar
        if isinstance(self.spec, Option) and self.spec.choices:
            return "|".join(self.spec.choices)
        return {int: "N", float: "X"}.get(self.kind, "TEXT")

    @property
    def help(self) -> str:
        """With the default and the environment variable, where they say something."""
        text = self.spec.help
        if isinstance(self.spec, Option):
            if self.spec.environment:
                text += f" Environment: {self.spec.environment}."
            shown = self.default not in (None, False, "", ()) and not self.required
            text += f" Default: {self.default}." if shown else ""
        return text


class Runnable(NamedTuple):
    """A command of an app."""

    name: str
    function: Callable[..., Any]

    @property
    def text(self) -> str:
        """The docstring without its indentation."""
        lines = (self.function.__doc__ or "").strip().splitlines()
        return "\n".join(line.strip() for line in lines)

    @property
    def summary(self) -> str:
        return self.text.split("\n\n", 1)[0].replace("\n", " ")

    def parameters(self) -> list[Parameter]:
        code = self.function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        defaults = self.function.__defaults__ or ()
        first_default = code.co_argcount - len(defaults)
        found = []
        for index, name in enumerate(names):
            required = index < first_default
            default = None if required else defaults[index - first_default]
            found.append(_parameter(name, self.function.__annotations__[name], required, default))
        return found


class App:
    """A command group, or one command alone (registered with an empty name)."""

    def __init__(self, summary: str) -> None:
        self.summary = summary
        self.commands: dict[str, Runnable] = {}

    def command(self, name: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function under its own name, another one, or (`""`) as the app itself."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            key = function.__name__.replace("_", "-") if name is None else name
            self.commands[key] = Runnable(key, function)
            return function

        return register

    def run(self, prog: str, arguments: Sequence[str]) -> int:
        """Parse and call; the exit code. Raises WrongUsage and whatever the command raises."""
        try:
            runnable, prog, rest = self._choose(prog, list(arguments))
            values = _parse(runnable, prog, rest)
        except HelpWanted as wanted:
            import sys

            print(wanted.text, file=sys.stdout if wanted.code == 0 else sys.stderr)
            return wanted.code
        result = runnable.function(**values)
        return result if isinstance(result, int) else 0

    def _choose(self, prog: str, arguments: list[str]) -> tuple[Runnable, str, list[str]]:
        if "" in self.commands:
            return self.commands[""], prog, arguments
        if not arguments:
            raise HelpWanted(self.overview(prog), 2)
        name = arguments[0]
        if name in ("-h", "--help"):
            raise HelpWanted(self.overview(prog), 0)
        if name in self.commands:
            return self.commands[name], f"{prog} {name}", arguments[1:]
        close = closest(name, self.commands)
        way_out = f"did you mean {close[0]}?" if close else f"commands are {', '.join(self.commands)}"
        raise WrongUsage(prog, f"there is no command {name!r}; {way_out}")

    def overview(self, prog: str) -> str:
        """The help of a group."""
        width = max(map(len, self.commands))
        rows = [f"  {name:<{width}}  {command.summary}" for name, command in self.commands.items()]
        return "\n".join([f"Usage: {prog} COMMAND [OPTIONS]", "", self.summary, "", "Commands:", *rows])


def closest(word: str, known: Iterable[str]) -> list[str]:
    """The one that was probably meant, if any."""
    from difflib import get_close_matches  # only mistakes pay for this import

    return get_close_matches(word, list(known), 1)


def _parameter(name: str, annotation: Any, required: bool, default: Any) -> Parameter:
    assert get_origin(annotation) is Annotated, f"parameter {name} needs Annotated[..., Option() or Argument()]"
    kind, spec = get_args(annotation)[:2]
    if get_origin(kind) in (UnionType, Union):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    is_list = get_origin(kind) is list
    if is_list:
        kind = get_args(kind)[0]
    return Parameter(name, kind, is_list, required, default, spec)


# --- parsing --------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        prefix = "unrecognized arguments: "
        if message.startswith(prefix):
            word = message.removeprefix(prefix).split()[0]
            known = [flag for action in self._actions for flag in action.option_strings]
            close = closest(word.split("=")[0], known) if word.startswith("-") else []
            message = f"there is no option {word}" if word.startswith("-") else f"unexpected argument {word!r}"
            message += f"; did you mean {close[0]}?" if close else ""
        raise WrongUsage(self.prog, message)


def build_parser(runnable: Runnable, prog: str) -> argparse.ArgumentParser:
    """The argparse parser of one command."""
    parser = _Parser(
        prog=prog,
        description=runnable.text,
        add_help=False,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=HELP_COLUMN),
    )
    for parameter in runnable.parameters():
        if isinstance(parameter.spec, Argument):
            _add_argument(parser, parameter)
        else:
            _add_option(parser, parameter, parameter.spec)
    parser.add_argument("--help", "-h", action="store_true", default=False, help="Show this and exit.")
    return parser


def _add_argument(parser: argparse.ArgumentParser, parameter: Parameter) -> None:
    count: Any = None
    if parameter.is_list:
        count = "+" if parameter.required else "*"
    elif not parameter.required:
        count = "?"
    parser.add_argument(
        parameter.name,
        nargs=count,
        type=parameter.kind,
        metavar=parameter.metavar,
        default=parameter.default,
        help=parameter.help,
    )


def _add_option(parser: argparse.ArgumentParser, parameter: Parameter, spec: Option) -> None:
    text = parameter.help.replace("%", "%%")
    if parameter.kind is bool:
        parser.add_argument(*parameter.flags, dest=parameter.name, action="store_true", default=False, help=text)
        return
    default = parameter.default
    if spec.environment and os.environ.get(spec.environment):
        default = os.environ[spec.environment]  # argparse converts texts by the option's type
    extra: dict[str, Any] = {"action": "append"} if parameter.is_list else {}
    parser.add_argument(
        *parameter.flags,
        dest=parameter.name,
        type=_converter(parameter.kind, spec),
        metavar=parameter.metavar,
        required=parameter.required,
        default=default,
        help=text,
        **extra,
    )


def _converter(kind: type, spec: Option) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        value = kind(text)
        if spec.choices is not None and value not in spec.choices:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(spec.choices)}")
        if spec.minimum is not None and value < spec.minimum:
            raise argparse.ArgumentTypeError(f"{text} is below {spec.minimum:g}")
        if spec.maximum is not None and value > spec.maximum:
            raise argparse.ArgumentTypeError(f"{text} is above {spec.maximum:g}")
        return value

    convert.__name__ = {int: "whole number", float: "number"}.get(kind, kind.__name__)
    return convert


def _parse(runnable: Runnable, prog: str, arguments: list[str]) -> dict[str, Any]:
    parser = build_parser(runnable, prog)
    if _asks_for_help(arguments):
        raise HelpWanted(parser.format_help().rstrip(), 0)
    if not arguments and any(p.required for p in runnable.parameters()):
        raise HelpWanted(parser.format_help().rstrip(), 2)
    values = vars(parser.parse_args(_in_order(runnable, arguments)))
    del values["help"]
    return values


def _in_order(runnable: Runnable, arguments: Sequence[str]) -> list[str]:
    """Options first, each with its value in one word, then `--` and the positional arguments.

    So arguments may stand between options and values may begin with a dash (`--to-datetime -1h`), neither of which
    argparse gets right by itself.
    """
    parameters = runnable.parameters()
    known = {flag for parameter in parameters for flag in parameter.flags} | {"-h", "--help", "--"}
    takes_value = {flag: p.flags[0] for p in parameters for flag in p.flags if p.kind is not bool}
    options: list[str] = []
    positionals: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            positionals += words
        elif not word.startswith("-") or word == "-":
            positionals.append(word)
        elif (flag := _awaits_value(word, takes_value)) is None:
            options.append(word)
        else:
            if word != flag and len(word) > 2 and not word.startswith("--"):
                options.append(word[:-1])  # -ec 3 is -e -c 3
            value = next(words, None)
            if value is None or value.split("=")[0] in known:
                options += [takes_value[flag], *([] if value is None else [value])]  # argparse says what is missing
            else:
                options.append(f"{takes_value[flag]}={value}")
    return [*options, "--", *positionals] if positionals else options


def _awaits_value(word: str, takes_value: Container[str]) -> str | None:
    """The flag whose value is the next word: the word itself, or the last letter of a cluster of short ones."""
    if word.startswith("--"):
        return word if word in takes_value else None
    for index, letter in enumerate(word[1:], 2):
        if f"-{letter}" in takes_value:
            return f"-{letter}" if index == len(word) else None
    return None


def _asks_for_help(arguments: Sequence[str]) -> bool:
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--help" in before or "-h" in before
