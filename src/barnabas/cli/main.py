"""Runs a command: imports only the module that the first word names, and turns errors into one line and an exit code.

The codes are those of `exit_codes`. A reader that went away (`| head`) is no error.
"""

import errno
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from barnabas.cli.exit_codes import FAILED, INTERRUPTED, NOT_YET, OK, TERMINATED, USAGE
from barnabas.cli.framework.streams import OutputLost, finish_output, open_closed_streams, redirect_to_null

if TYPE_CHECKING:
    from barnabas.cli.framework.app import App

__all__ = ["COMMANDS", "Command", "run"]


class Terminated(KeyboardInterrupt):
    """Ends the command after SIGTERM as after Ctrl-C."""


class Command(NamedTuple):
    """A command's module and purpose."""

    module: str
    """In this package."""
    summary: str

    def load(self) -> "App":
        """Imports the module, and returns the app that parses and runs the command."""
        app: App = import_module(f".{self.module}", "barnabas.cli").app
        return app


COMMANDS: Final[dict[str, Command]] = {
    "serve": Command("serve.serve", "Run a broker in the foreground, or a cluster of several."),
    "topics": Command("topics.topics", "List, create, describe, delete and grow topics."),
    "produce": Command("records.produce", "Write records from standard input or a file."),
    "consume": Command("records.consume", "Read records and print them."),
    "groups": Command("groups.groups", "List, describe, reset and delete consumer groups."),
    "transactions": Command(
        "transactions.transactions", "List and describe transactions; find and abort those that hang."
    ),
    "configs": Command("cluster.configs", "Show and change settings of topics, brokers and groups."),
    "cluster": Command("cluster.cluster", "Describe the cluster, its brokers and replicas; move replicas and leaders."),
    "brokers": Command("cluster.brokers", "List the brokers."),
    "log-dirs": Command(
        "cluster.log_dirs", "Show the brokers' log directories and the replicas in them; move replicas."
    ),
    "get-offsets": Command("topics.get_offsets", "Show where partitions begin and end, or stood at a time."),
    "delete-records": Command("topics.delete_records", "Delete the oldest records of partitions."),
    "elect-leaders": Command("topics.elect_leaders", "Make preferred replicas the leaders of their partitions."),
    "dump-log": Command("dump.dump_log", "Print and check the files of a log directory."),
    "perf": Command("records.perf", "Measure producing, consuming and latency."),
    "doctor": Command("cluster.doctor", "Say why a client cannot connect."),
    "profiles": Command("cluster.profiles", "List profiles: named files of client settings, used with --profile."),
    "completion": Command("completion", "Print a script that makes a shell complete commands, options and names."),
    "pipeline": Command("pipeline.pipeline", "Data pipelines on Spark: from topics to tables and back."),
    "sql": Command("pipeline.sql", "Ask topics in SQL; Spark runs in this process."),
    "demo": Command("demo.demo", "Replay real data through a broker and check what comes back."),
}


def run(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code. Raises no error that a user can cause."""
    open_closed_streams(drop_output=arguments[:1] == ["serve"])
    as_json = "--json" in arguments
    try:
        with _sigterm_raises():
            code = _dispatch(list(arguments))
            finish_output()
            return code
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt, as_json=as_json)
    except OutputLost as lost:
        return _report(type(lost).__name__, str(lost), FAILED, as_json=as_json)
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
        return OK


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Has SIGTERM raise Terminated, unless it is ignored or handled already. Only the main thread can set handlers."""
    handled = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    if handled or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(_number: int, _frame: object) -> NoReturn:
    raise Terminated


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return OK if arguments else USAGE
    name, rest = arguments[0], arguments[1:]
    if name == "help":
        return _dispatch([*rest, "--help"])
    if name in ("-V", "--version", "version"):
        return _version(as_json="--json" in rest)
    as_json = "--json" in arguments
    known = _known(name)
    if known is None:
        return _unknown(name, as_json=as_json)
    try:
        if known == "serve":
            from barnabas.cli.serve.start_broker import parse_serve, run_broker

            options = parse_serve(rest)
            if options is not None:
                return run_broker(options)
        return COMMANDS[known].load().run(f"barnabas {known}", rest)
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            finish_output()  # raises with the reason, if the output failed
        try:
            return _failed(error, as_json=as_json)
        except (MemoryError, OSError) as unsaid:
            if isinstance(unsaid, OSError) and unsaid.errno != errno.ENOMEM:
                raise
            return _without_memory(as_json=as_json)


def _known(name: str) -> str | None:
    if name in COMMANDS:
        return name
    from barnabas.cli.framework.app import meant

    return meant(name, COMMANDS)


def _version(*, as_json: bool) -> int:
    from barnabas.records.compiled.installation import describe_installation, is_compiled
    from barnabas.version import __version__

    if as_json:
        from barnabas.cli.framework.output import print_json

        print_json({"version": __version__, "compiled": is_compiled()})
    else:
        print(f"barnabas {__version__} ({describe_installation()})")
    return OK


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: barnabas COMMAND [OPTIONS]",
            "",
            "A broker that every Kafka client can use, and tools that work with any Kafka.",
            "",
            "Commands:",
            *lines,
            "",
            "Examples:",
            "  barnabas serve --data-dir data",
            "  barnabas topics create orders --partitions 3",
            "  barnabas consume orders --exit",
            "",
            "`barnabas COMMAND --help` explains a command. Brokers are found by --bootstrap HOST:PORT or",
            "BARNABAS_BOOTSTRAP (127.0.0.1:9092 otherwise); --json gives machine-readable output everywhere.",
            "Topic and topics, group and groups, ...: both forms of a command's name work.",
        ]
    )


def _unknown(name: str, *, as_json: bool) -> int:
    from barnabas.cli.framework.app import way_out

    hint = way_out(name, COMMANDS, f"commands are {', '.join(COMMANDS)}")
    return _report("WrongUsage", f"there is no command {name!r}; {hint}", USAGE, as_json=as_json)


# --- errors ---------------------------------------------------------------------------------------------------------


def _failed(error: Exception, *, as_json: bool) -> int:
    """Prints a line for each error that users and brokers can cause. Raises any other error, a defect, with its
    traceback."""
    from barnabas.client.errors import ItemsFailed
    from barnabas.errors import NotYet, UsageError, WrongSettings

    if isinstance(error, WrongSettings) and not as_json:
        for finding in error.findings:
            _report("", finding, USAGE, as_json=False)
        return USAGE
    attempts = getattr(error, "attempts", ())
    causes: list[Exception] = list(error.failed.values()) if isinstance(error, ItemsFailed) else [error]
    names, texts = zip(*map(_name_and_text, causes), strict=True)
    text = "; ".join(dict.fromkeys(texts))
    code = NOT_YET if isinstance(error, NotYet) else USAGE if isinstance(error, UsageError) else FAILED
    if not text and not as_json:
        return code  # the command has reported the error itself
    return _report(names[0], text, code, attempts or getattr(causes[0], "attempts", ()), as_json=as_json)


def _without_memory(*, as_json: bool) -> int:
    """Tells that memory has run out where there is none for the modules that tell other errors."""
    body = '{"error": "MemoryError", "message": "memory has run out", "attempts": []}'
    with suppress(OSError):
        print(body if as_json else "barnabas: memory has run out", file=sys.stderr, flush=True)
    return FAILED


def _name_and_text(error: Exception) -> tuple[str, str]:
    """Returns the name and the text of an error. Raises an error that is a defect."""
    from barnabas.errors import BarnabasError, KafkaError
    from barnabas.out_of_memory import is_lack_of_memory

    name = type(error).__name__
    if isinstance(error, KafkaError):
        text = str(error) if error.kafka_name in str(error) else f"{error} ({error.kafka_name})"
        if text.startswith("topic ") and "does not exist" in text:
            text += "; `barnabas topics list` shows what does"
        return error.kafka_name, text
    if is_lack_of_memory(error):
        return "MemoryError", "memory has run out"
    if isinstance(error, ImportError) and (error.path or "").endswith(tuple(EXTENSION_SUFFIXES)):
        return name, str(error)  # the loader's own words: no memory, no descriptor, another machine's library
    if isinstance(error, OSError):
        reason = (error.strerror or str(error) or name).lower()
        if error.errno == errno.EMFILE:
            reason += "; raise the limit on open files (ulimit -n)"
        return name, f"{error.filename}: {reason}" if error.filename else reason
    if isinstance(error, BarnabasError):
        return name, str(error)
    raise error


def _report(name: str, text: str, code: int, attempts: Any = (), *, as_json: bool) -> int:
    """Prints on standard error why the command ends. Returns the exit code."""
    from barnabas.cli.framework.output import notice

    if as_json:
        import json

        body = {"error": name, "message": text, "attempts": [attempt._asdict() for attempt in attempts]}
        notice(json.dumps(body))
    else:
        notice(f"{'' if text.startswith('barnabas ') else 'barnabas: '}{' '.join(text.split())}")
    return code


def _interrupted(interrupt: KeyboardInterrupt, *, as_json: bool) -> int:
    try:
        finish_output()
    except KeyboardInterrupt:  # the reader of the output is blocked, and the user does not want to wait
        redirect_to_null(sys.stdout)
    except OutputLost as lost:
        return _report(type(lost).__name__, str(lost), FAILED, as_json=as_json)
    if isinstance(interrupt, Terminated):
        return _report("Terminated", "stopped by SIGTERM", TERMINATED, as_json=as_json)
    return _report("Interrupted", "stopped by Ctrl-C", INTERRUPTED, as_json=as_json)
