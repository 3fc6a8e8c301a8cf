"""Commands as typed functions: a parameter's annotation says its option, and argparse does the parsing.

    @app.command(example="barnabas topics create orders -p 3")
    def create(names: Annotated[list[str], Argument("TOPIC")], count: Annotated[int, Option("-p")] = -1) -> None: ...

A parameter whose type is a NamedTuple of such annotations stands for all of its fields: options that commands share.

Why not typer or click: typer 0.29 imports pydantic when it parses, which made `topics list` take 220 ms against 90 ms
with this module, and the standard library adds nothing to what a test environment has to install.
"""

import argparse
import math
import os
import reprlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, NoReturn, Union, get_args, get_origin

from barnabas.errors import UsageError
from barnabas.printable import is_text

__all__ = [
    "App",
    "Argument",
    "HelpWanted",
    "Option",
    "Parameter",
    "Runnable",
    "WrongUsage",
    "meant",
    "parse",
    "way_out",
]

HELP_COLUMN: Final = 30
HELP_OPTION: Final = "--help"
_REQUIRED: Final = object()
"""Stands for the missing default of a required parameter."""


class WrongUsage(UsageError):
    """The command line of `command` cannot be parsed."""

    def __init__(self, command: str, message: str) -> None:
        super().__init__(f"{command}: {message}; see `{command} --help`")


class HelpWanted(Exception):
    """--help was given."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


Check = Callable[[str], object]
"""Raises UsageError for a text that a parameter cannot have."""


class Option:
    """A named parameter. Without a long flag among its flags, the parameter's name with dashes is one.

    One that `takes_bytes`, such as the name of a file, need not be UTF-8.
    """

    __slots__ = ("check", "choices", "environment", "flags", "help", "maximum", "metavar", "minimum", "takes_bytes")

    def __init__(
        self,
        *flags: str,
        help: str = "",
        metavar: str | None = None,
        environment: str | None = None,
        choices: Sequence[str] | None = None,
        minimum: float | None = None,
        maximum: float | None = None,
        takes_bytes: bool = False,
        check: Check | None = None,
    ) -> None:
        self.flags = flags
        self.help = help
        self.metavar = metavar
        self.environment = environment
        self.choices = choices
        self.minimum = minimum
        self.maximum = maximum
        self.takes_bytes = takes_bytes
        self.check = check


class Argument:
    """A positional parameter; a list takes one or more, with a default none or more. `takes_bytes` is as of options."""

    __slots__ = ("check", "help", "metavar", "takes_bytes")

    def __init__(self, metavar: str, help: str = "", *, takes_bytes: bool = False, check: Check | None = None) -> None:
        self.metavar = metavar
        self.help = help
        self.takes_bytes = takes_bytes
        self.check = check


class Parameter(NamedTuple):
    """A parameter of a command function."""

    name: str
    kind: type
    is_list: bool
    required: bool
    default: Any
    spec: Option | Argument
    part_of: str = ""
    """The parameter of a NamedTuple type that this one is a field of."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Long ones first; empty for positional parameters."""
        if isinstance(self.spec, Argument):
            return ()
        flags = sorted(self.spec.flags, key=lambda flag: not flag.startswith("--"))
        if not any(flag.startswith("--") for flag in flags):
            flags.insert(0, "--" + self.name.replace("_", "-"))
        return tuple(flags)

    @property
    def usage(self) -> str:
        """The usage of a positional parameter: `TOPIC...`, or `[TOPIC...]` if it is optional."""
        text = self.metavar + ("..." if self.is_list else "")
        return text if self.required else f"[{text}]"

    @property
    def metavar(self) -> str:
        if self.spec.metavar:
            return self.spec.metavar
        if isinstance(self.spec, Option) and self.spec.choices:
            return "|".join(self.spec.choices)
        return {int: "N", float: "X"}.get(self.kind, "TEXT")

    @property
    def help(self) -> str:
        """The help text with the default and the environment variable."""
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
    example: str = ""
    """Complete command lines, one a line."""
    notes: str = ""
    """The part of the help below the options."""

    @property
    def text(self) -> str:
        """The docstring without its indentation."""
        lines = (self.function.__doc__ or "").strip().splitlines()
        return "\n".join(line.strip() for line in lines)

    @property
    def summary(self) -> str:
        return self.text.split("\n\n", 1)[0].replace("\n", " ")

    def usage(self, prog: str) -> str:
        """`barnabas topics create TOPIC... [OPTIONS]`."""
        positional = [p.usage for p in self.parameters() if isinstance(p.spec, Argument)]
        return " ".join([prog, *positional, "[OPTIONS]"])

    def parameters(self) -> list[Parameter]:
        """One for each option and argument; a NamedTuple among the function's parameters gives one for each field."""
        found: list[Parameter] = []
        for name, annotation, default in self._declared():
            if hasattr(annotation, "_fields"):
                fields = annotation.__annotations__
                found += [
                    _parameter(field, fields[field], False, getattr(default, field), name)
                    for field in annotation._fields
                ]
            else:
                found.append(
                    _parameter(name, annotation, default is _REQUIRED, None if default is _REQUIRED else default)
                )
        return found

    def call(self, values: dict[str, Any]) -> Any:
        """Call the function with a value for each of `parameters`."""
        for name, annotation, _ in self._declared():
            if hasattr(annotation, "_fields"):
                values[name] = annotation(**{field: values.pop(field) for field in annotation._fields})
        return self.function(**values)

    def _declared(self) -> Iterator[tuple[str, Any, Any]]:
        """(name, annotation, default or _REQUIRED) of the function's own parameters."""
        code = self.function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        defaults = self.function.__defaults__ or ()
        first_default = code.co_argcount - len(defaults)
        for index, name in enumerate(names):
            default = _REQUIRED if index < first_default else defaults[index - first_default]
            yield name, self.function.__annotations__[name], default


class App:
    """A command group, or one command alone (registered with an empty name).

    Where a group has a `default`, that is the command of a line that names none: `barnabas brokers` is `barnabas
    brokers list`.
    """

    def __init__(self, summary: str, default: str | None = None) -> None:
        self.summary = summary
        self.default = default
        self.commands: dict[str, Runnable] = {}

    def command(
        self, name: str | None = None, *, example: str = "", notes: str = ""
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function under its own name, another one, or (`""`) as the app itself."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            key = function.__name__.replace("_", "-") if name is None else name
            self.commands[key] = Runnable(key, function, example, notes)
            return function

        return register

    def run(self, prog: str, arguments: Sequence[str]) -> int:
        """Parses the arguments and calls the command. Returns the exit code. Raises WrongUsage, and what the command
        raises."""
        try:
            runnable, prog, rest = self._choose(prog, list(arguments))
            values = parse(runnable, prog, rest)
        except HelpWanted as wanted:
            print(wanted.text)
            return 0
        result = runnable.call(values)
        return result if isinstance(result, int) else 0

    def _choose(self, prog: str, arguments: list[str]) -> tuple[Runnable, str, list[str]]:
        if "" in self.commands:
            return self.commands[""], prog, arguments
        name = arguments[0] if arguments else ""
        if " ".join(arguments[:2]) in self.commands:  # a name of two words
            return self.commands[" ".join(arguments[:2])], f"{prog} {' '.join(arguments[:2])}", arguments[2:]
        if name in ("-h", HELP_OPTION):
            raise HelpWanted(self.overview(prog))
        if self.default is not None and (not name or name.startswith("-")):
            return self.commands[self.default], f"{prog} {self.default}", arguments
        if not name or name.startswith("-"):
            raise WrongUsage(prog, f"COMMAND is missing; commands are {', '.join(self.commands)}")
        known = meant(name, self.commands)
        if known is not None:
            return self.commands[known], f"{prog} {known}", arguments[1:]
        longer = [command for command in self.commands if command.startswith(f"{name} ")]
        if longer:
            raise WrongUsage(prog, f"{name!r} is not complete; commands are {', '.join(longer)}")
        hint = way_out(name, self.commands, f"commands are {', '.join(self.commands)}")
        raise WrongUsage(prog, f"there is no command {name!r}; {hint}")

    def overview(self, prog: str) -> str:
        """The help of a group."""
        width = max(map(len, self.commands))
        rows = [f"  {name:<{width}}  {command.summary}" for name, command in self.commands.items()]
        examples = [f"  {command.example.splitlines()[0]}" for command in self.commands.values() if command.example]
        lines = [f"Usage: {prog} COMMAND [OPTIONS]", "", self.summary, "", "Commands:", *rows]
        if examples:
            lines += ["", "Examples:", *examples]
        lines += ["", f"`{prog} COMMAND --help` explains a command."]
        if self.default is not None:
            lines.append(f"Without a COMMAND this is `{prog} {self.default}`.")
        return "\n".join(lines)


def way_out(word: str, known: Iterable[str], otherwise: str) -> str:
    """Returns "did you mean ...?" for a misspelt word, or the text `otherwise` if no known word is like it."""
    from barnabas.config.definitions import nearest  # imported only after a mistake

    close = nearest(word, known, 0.6)
    return f"did you mean {close}?" if close else otherwise


def meant(word: str, known: Container[str]) -> str | None:
    """Returns the known word itself, or its known plural or singular."""
    for form in (word, f"{word}s", word.removesuffix("s")):
        if form in known:
            return form
    return None


def _parameter(name: str, annotation: Any, required: bool, default: Any, part_of: str = "") -> Parameter:
    assert get_origin(annotation) is Annotated, f"parameter {name} needs Annotated[..., Option() or Argument()]"
    kind, spec = get_args(annotation)[:2]
    if get_origin(kind) in (UnionType, Union):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    is_list = get_origin(kind) is list
    if is_list:
        kind = get_args(kind)[0]
    return Parameter(name, kind, is_list, required, default, spec, part_of)


# --- parsing --------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """argparse's parser with messages of our own."""

    example = ""

    def error(self, message: str) -> NoReturn:
        raise WrongUsage(self.prog, self._message(message))

    def _message(self, message: str) -> str:
        kind, _, rest = message.partition(": ")
        if kind == "the following arguments are required":
            missing = [name.split("/")[0] for name in rest.split(", ")]  # of an option the first flag
            example = f", as in `{self.example}`" if self.example else ""
            return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing{example}"
        if kind.startswith("argument "):
            flag = kind.removeprefix("argument ").split("/")[0]
            if rest == "expected one argument":
                action = next((a for a in self._actions if flag in a.option_strings), None)
                shown = f" {action.metavar}" if action is not None and action.metavar else ""
                return f"{flag}: the value{shown} is missing"
            return f"{flag}: {rest}"
        return message

    def refuse_option(self, word: str) -> NoReturn:
        """Raises WrongUsage for an option that there is not."""
        known = [flag for action in self._actions for flag in action.option_strings]
        hint = way_out(word.split("=")[0], known, "")
        self.error(f"there is no option {word}" + (f"; {hint}" if hint else ""))


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """`-p, --partitions N`: short flags first, and the value's name once."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=HELP_COLUMN)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        flags = ", ".join(sorted(action.option_strings, key=len))
        return flags if action.nargs == 0 else f"{flags} {self._format_args(action, action.dest.upper())}"


def build_parser(runnable: Runnable, prog: str) -> _Parser:
    """The argparse parser of one command."""
    examples = runnable.example.splitlines()
    notes = [runnable.notes.rstrip(), ""] if runnable.notes else []
    if examples:
        notes += [f"example{'s' * (len(examples) > 1)}:", *(f"  {line}" for line in examples)]
    parser = _Parser(
        prog=prog,
        usage=runnable.usage(prog).replace("%", "%%"),
        description=runnable.text,
        epilog="\n".join(notes),
        add_help=False,
        allow_abbrev=False,
        formatter_class=_HelpFormatter,
    )
    parser.example = examples[0] if examples else ""
    shared: argparse._ActionsContainer | None = None
    for parameter in runnable.parameters():
        if isinstance(parameter.spec, Argument):
            _add_argument(parser, parameter)
        elif parameter.part_of:
            if shared is None:
                shared = parser.add_argument_group(f"{parameter.part_of} options")
            _add_option(shared, parameter, parameter.spec)
        else:
            _add_option(parser, parameter, parameter.spec)
    parser.add_argument(HELP_OPTION, "-h", action="store_true", default=False, help="Show this and exit.")
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
        type=_converter(parameter.kind, parameter.spec),
        metavar=parameter.metavar,
        default=parameter.default,
        help=parameter.help,
    )


def _add_option(parser: argparse._ActionsContainer, parameter: Parameter, spec: Option) -> None:
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


def _converter(kind: type, spec: Option | Argument) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        if not spec.takes_bytes and not is_text(text):
            raise argparse.ArgumentTypeError(f"{reprlib.repr(text)} is not UTF-8, and only text will do here")
        try:
            value = kind(text)
            if kind is float and not math.isfinite(value):
                raise ValueError
        except ValueError:
            what = {int: "whole number", float: "number"}.get(kind, kind.__name__)
            raise argparse.ArgumentTypeError(f"{reprlib.repr(text)} is not a {what}") from None
        if spec.check is not None:
            try:
                spec.check(text)
            except UsageError as error:
                raise argparse.ArgumentTypeError(str(error)) from None
        if isinstance(spec, Argument):
            return value
        if spec.choices is not None and value not in spec.choices:
            raise argparse.ArgumentTypeError(f"{reprlib.repr(text)} is none of {', '.join(spec.choices)}")
        if spec.minimum is not None and value < spec.minimum:
            raise argparse.ArgumentTypeError(f"{text} is below {spec.minimum:g}")
        if spec.maximum is not None and value > spec.maximum:
            raise argparse.ArgumentTypeError(f"{text} is above {spec.maximum:g}")
        return value

    return convert


def parse(runnable: Runnable, prog: str, arguments: list[str]) -> dict[str, Any]:
    """Returns a value for each of the command's parameters. Raises WrongUsage, HelpWanted."""
    parser = build_parser(runnable, prog)
    if _asks_for_help(arguments):
        raise HelpWanted(parser.format_help().rstrip())
    options, positionals = _in_order(runnable, arguments)
    found, left = parser.parse_known_args([*options, "--", *positionals] if positionals else options)
    if left:
        word = positionals[0] if left[0] == "--" else left[0]
        if word not in positionals:
            parser.refuse_option(word)
        parser.error(f"unexpected argument {word!r}")
    values = vars(found)
    del values["help"]
    return values


def _in_order(runnable: Runnable, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the options, each with its value in one word, and the positional arguments, to be parsed with `--`
    between them.

    So arguments may be between options, and values may begin with a dash (`--to-datetime -1h`), which argparse alone
    does not accept.
    """
    parameters = runnable.parameters()
    known = {flag for parameter in parameters for flag in parameter.flags} | {"-h", HELP_OPTION, "--"}
    takes_value = {flag: p.flags[0] for p in parameters for flag in p.flags if p.kind is not bool}
    options: list[str] = []
    positionals: list[str] = []
    words = iter(arguments)
    for word in words:
        if word.startswith("--") and word != "--":
            flag, equals, value = word.partition("=")
            word = (meant(flag, known) or flag) + equals + value  # --topics for --topic
        if word == "--":
            positionals += words
        elif not word.startswith("-") or word == "-":
            positionals.append(word)
        elif (awaiting := _awaits_value(word, takes_value)) is None:
            options.append(word)
        else:
            if word != awaiting and len(word) > 2 and not word.startswith("--"):
                options.append(word[:-1])  # -ec 3 is -e -c 3
            following = next(words, None)
            if following is None or following.split("=")[0] in known:
                options += [takes_value[awaiting], *([] if following is None else [following])]  # argparse reports it
            else:
                options.append(f"{takes_value[awaiting]}={following}")
    return options, positionals


def _awaits_value(word: str, takes_value: Container[str]) -> str | None:
    """Returns the flag whose value is the next word: the word itself, or the last letter of short flags in one word."""
    if word.startswith("--"):
        return word if word in takes_value else None
    for index, letter in enumerate(word[1:], 2):
        if f"-{letter}" in takes_value:
            return f"-{letter}" if index == len(word) else None
    return None


def _asks_for_help(arguments: Sequence[str]) -> bool:
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return HELP_OPTION in before or "-h" in before
