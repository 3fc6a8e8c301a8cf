"""Dispatch: the first word chooses a module, only that module is imported; errors become one line and an exit code.

0: done. 1: the operation failed. 2: wrong usage. 130: Ctrl-C. A reader that went away (`| head`) is no error.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.printable import printable

if TYPE_CHECKING:
    from barnabas.cli.app import App

__all__ = ["COMMANDS", "Command", "run"]

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


class Command(NamedTuple):
    """Where a command lives and what it is for."""

    module: str
    """In this package, or with a dot in front in the one above."""
    summary: str

    def load(self) -> "App":
        """What parses and runs it; its module is imported for that."""
        app: App = import_module(f".{self.module}", "barnabas.cli").app
        return app


COMMANDS: Final[dict[str, Command]] = {
    "serve": Command("serve", "Run a broker in the foreground."),
    "topics": Command("topics", "List, create, describe, delete and grow topics."),
    "produce": Command("produce", "Write records from standard input or a file."),
    "consume": Command("consume", "Read records and print them."),
    "groups": Command("groups", "List, describe, reset and delete consumer groups."),
    "transactions": Command("transactions", "List and describe transactions; find and abort those that hang."),
    "configs": Command("configs", "Show and change settings of topics and brokers."),
    "dump-log": Command("dump_log", "Print and check the files of a log directory."),
    "perf": Command("perf", "Measure producing, consuming and latency."),
    "doctor": Command("doctor", "Say why a client cannot connect."),
    "pipeline": Command(".pipeline.commands", "Data pipelines on Spark: from topics to tables and back."),
    "sql": Command(".pipeline.sql.command", "Ask topics in SQL; Spark runs in this process."),
    "demo": Command("demo", "Replay real data through a broker and check what comes back."),
}


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit code. Never raises what a user can cause."""
    try:
        return _dispatch(list(arguments))
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        return _reader_gone()
    finally:
        _flush()


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return OK if arguments else USAGE
    name, rest = arguments[0], arguments[1:]
    if name in ("-V", "--version", "version"):
        from barnabas import __version__

        print(f"barnabas {__version__}")
        return OK
    command = COMMANDS.get(name)
    if command is None:
        return _unknown(name)
    try:
        if name == "serve":
            from barnabas.cli.serve import serve

            code = serve(rest)
            if code is not None:
                return code
        return _run_app(name, command, rest)
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as error:
        return _failed(error, as_json="--json" in rest)


def _run_app(name: str, command: Command, arguments: list[str]) -> int:
    return command.load().run(f"barnabas {name}", arguments)


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
            "`barnabas COMMAND --help` shows its options. Brokers are found by --bootstrap HOST:PORT or",
            "BARNABAS_BOOTSTRAP (127.0.0.1:9092 otherwise); --json gives machine-readable output everywhere.",
        ]
    )


def _unknown(name: str) -> int:
    from barnabas.cli.app import closest

    close = closest(name, COMMANDS)
    way_out = f"did you mean {close[0]}?" if close else f"commands are {', '.join(COMMANDS)}"
    print(f"barnabas: there is no command {name!r}; {way_out}", file=sys.stderr)
    return USAGE


# --- errors ---------------------------------------------------------------------------------------------------------


def _failed(error: Exception, *, as_json: bool) -> int:
    """Print one line for what users and brokers can cause; anything else is our mistake and keeps its traceback."""
    from barnabas.client.errors import ItemsFailed
    from barnabas.errors import UsageError

    attempts = getattr(error, "attempts", ())
    causes: list[Exception] = list(error.failed.values()) if isinstance(error, ItemsFailed) else [error]
    names, texts = zip(*map(_told, causes), strict=True)
    text = "; ".join(dict.fromkeys(texts))
    if as_json:
        _print_json_error(names[0], text, attempts or getattr(causes[0], "attempts", ()))
    elif text:
        print(f"{'' if text.startswith('barnabas ') else 'barnabas: '}{_one_line(text)}", file=sys.stderr)
    return USAGE if isinstance(error, UsageError) else FAILED


def _told(error: Exception) -> tuple[str, str]:
    """(name, text) of what went wrong. Raises what is our mistake."""
    from barnabas.errors import BarnabasError, KafkaError

    name = type(error).__name__
    if isinstance(error, KafkaError):
        text = str(error) if error.kafka_name in str(error) else f"{error} ({error.kafka_name})"
        if text.startswith("topic ") and "does not exist" in text:
            text += "; `barnabas topics list` shows what does"
        return error.kafka_name, text
    if isinstance(error, OSError):
        reason = (error.strerror or str(error) or name).lower()
        return name, f"{error.filename}: {reason}" if error.filename else reason
    if isinstance(error, BarnabasError):
        return name, str(error)
    raise error


def _print_json_error(name: str, text: str, attempts: Any) -> None:
    import json

    body = {"error": name, "message": text, "attempts": [attempt._asdict() for attempt in attempts]}
    print(json.dumps(body), file=sys.stderr)


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _interrupted() -> int:
    # what is buffered for a reader is still worth having, but not waiting for
    return INTERRUPTED


def _reader_gone() -> int:
    """Nobody reads our output any more: that was the reader's wish."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return OK


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _reader_gone()
    except (OSError, ValueError):
        return
