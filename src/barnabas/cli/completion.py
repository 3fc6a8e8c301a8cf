"""`barnabas completion`: scripts for bash, zsh and fish, and the candidates that the scripts show.

The scripts call `barnabas completion candidates` at each tab, so that all three shells complete the same: what the
commands declare, the choices of their options, profiles, and the topics and groups of the cluster.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final, NamedTuple

from barnabas.cli.framework.app import App, Argument, Option, Parameter, Runnable, meant
from barnabas.cli.framework.options import Cluster, Json
from barnabas.cli.framework.output import print_json
from barnabas.cli.main import COMMANDS
from barnabas.errors import BarnabasError

app = App("Print a script that makes a shell complete commands, options and names.")

BROKER_TIMEOUT_S: Final = 1.0
"""The time limit for the names of topics and groups."""

BASH: Final = """\
_barnabas() {
    local candidate
    COMPREPLY=()
    while IFS=$'\\t' read -r candidate _; do
        COMPREPLY+=("$candidate")
    done < <("$1" completion candidates -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -o bashdefault -F _barnabas barnabas
"""
ZSH: Final = """\
#compdef barnabas
_barnabas() {
    local line
    local -a candidates
    for line in "${(@f)$("${words[1]}" completion candidates -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && candidates+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done
    if (( $#candidates )); then
        _describe -V barnabas candidates
    else
        _files
    fi
}
if [[ $funcstack[1] == _barnabas ]]; then
    _barnabas "$@"
else
    compdef _barnabas barnabas
fi
"""
FISH: Final = """\
function __barnabas_candidates
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] completion candidates -- $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c barnabas -f -a '(__barnabas_candidates)'
"""


class Candidate(NamedTuple):
    """A word that may follow, and its purpose."""

    word: str
    meaning: str = ""


@app.command(
    example="source <(barnabas completion bash)", notes="To have it in every shell, add the line to ~/.bashrc.\n"
)
def bash(json: Json = False) -> None:
    """Print the script for bash."""
    _show_script("bash", BASH, json)


@app.command(
    example="source <(barnabas completion zsh)",
    notes="To have it in every shell, add the line to ~/.zshrc, after compinit.\n",
)
def zsh(json: Json = False) -> None:
    """Print the script for zsh."""
    _show_script("zsh", ZSH, json)


@app.command(
    example="barnabas completion fish | source",
    notes="To have it in every shell, write the script to ~/.config/fish/completions/barnabas.fish.\n",
)
def fish(json: Json = False) -> None:
    """Print the script for fish."""
    _show_script("fish", FISH, json)


def _show_script(shell: str, script: str, as_json: bool) -> None:
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        print(script, end="")


@app.command(example="barnabas completion candidates -- topics de")
def candidates(
    words: Annotated[
        list[str] | None, Argument("WORD", "The words after `barnabas`, up to the one to complete.", takes_bytes=True)
    ] = None,
    json: Json = False,
) -> None:
    """Print the candidates for the last word, each with its meaning after a tab; nothing where a file is expected.

    The shells' scripts call this. Words that begin with a dash must come after `--`.
    """
    found = find_candidates(words or [""])
    if json:
        print_json([candidate._asdict() for candidate in found])
    else:
        print("".join(f"{candidate.word}\t{candidate.meaning}\n" for candidate in found), end="")


def find_candidates(words: Sequence[str]) -> list[Candidate]:
    """Returns the candidates for the last word."""
    *before, current = words
    return [candidate for candidate in _all_candidates(before, current) if candidate.word.startswith(current)]


def _all_candidates(before: list[str], current: str) -> Iterable[Candidate]:
    if not before:
        return [Candidate(name, command.summary) for name, command in COMMANDS.items()]
    name = meant(before[0], COMMANDS)
    if name is None:
        return ()
    group = COMMANDS[name].load()
    rest = before[1:]
    runnable: Runnable | None
    if "" in group.commands:
        runnable = group.commands[""]
    elif not rest and not (current.startswith("-") and group.default):
        first = {name.split()[0]: command.summary for name, command in group.commands.items()}
        return [Candidate(name, summary) for name, summary in first.items()]
    elif len(rest) == 1 and (longer := [name for name in group.commands if name.startswith(f"{rest[0]} ")]):
        return [Candidate(name.split()[1], group.commands[name].summary) for name in longer]
    elif " ".join(rest[:2]) in group.commands:
        runnable, rest = group.commands[" ".join(rest[:2])], rest[2:]
    elif rest and (known := meant(rest[0], group.commands)):
        runnable, rest = group.commands[known], rest[1:]
    else:
        runnable = group.commands.get(group.default or "")
    return _of_command(runnable, rest, current) if runnable is not None else ()


def _of_command(runnable: Runnable, before: Sequence[str], current: str) -> Iterable[Candidate]:
    parameters = runnable.parameters()
    by_flag = {flag: parameter for parameter in parameters for flag in parameter.flags}
    given: dict[str, Any] = {}
    positionals = 0
    awaiting: Parameter | None = None
    for word in before:
        if awaiting is not None:
            _note(given, awaiting, word)
            awaiting = None
            continue
        flag, equals, value = word.partition("=")
        option = by_flag.get(meant(flag, by_flag) or "")
        if option is None:
            positionals += not word.startswith("-")
        elif equals:
            _note(given, option, value)
        elif option.kind is not bool:
            awaiting = option
    if awaiting is not None:
        return _values(awaiting, given)
    if current.startswith("-"):
        long = {parameter.flags[0]: parameter.help for parameter in parameters if parameter.flags}
        return [*(Candidate(flag, help) for flag, help in long.items()), Candidate("--help", "Show this and exit.")]
    arguments = [parameter for parameter in parameters if not parameter.flags]
    if positionals < len(arguments):
        return _values(arguments[positionals], given)
    return _values(arguments[-1], given) if arguments and arguments[-1].is_list else ()


def _note(given: dict[str, Any], option: Parameter, value: str) -> None:
    if option.is_list:
        given.setdefault(option.name, []).append(value)
    else:
        given[option.name] = value


def _values(parameter: Parameter, given: dict[str, Any]) -> Iterable[Candidate]:
    """Returns the values of an option or argument; nothing where any text is valid."""
    spec, metavar = parameter.spec, parameter.metavar
    if isinstance(spec, Option) and spec.choices:
        return map(Candidate, spec.choices)
    if parameter.name == "profile":
        from barnabas.cli.framework.profile_files import profile_names

        return map(Candidate, profile_names())
    if parameter.flags == () and "|" in metavar:
        return map(Candidate, metavar.split("|"))
    if metavar.startswith("TOPIC"):
        return _names_in_cluster(given, lambda admin: [topic.name for topic in admin.list_topics()])
    if metavar == "GROUP" or parameter.name == "group":
        return _names_in_cluster(given, lambda admin: [group.group_id for group in admin.list_groups()])
    return ()


def _names_in_cluster(given: dict[str, Any], names: Callable[[Any], list[str]]) -> list[Candidate]:
    """Returns names from the cluster that the options choose; none if it does not respond at once."""
    cluster = Cluster(given.get("bootstrap"), BROKER_TIMEOUT_S, given.get("client"), given.get("profile"))
    with contextlib.suppress(BarnabasError, OSError), cluster.admin() as admin:
        return [Candidate(name) for name in names(admin) if name.isprintable()]
    return []
