"""Parses the options of `barnabas serve` by hand and runs the broker.

Importing argparse and the declared options would delay the start of each broker. `barnabas.cli.serve.serve` declares
the same options: it prints the help and the errors of usage, and the reference is generated from it.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from _typeshed import SupportsWrite

    from barnabas.config.sources import LoadedConfig

__all__ = [
    "LOG_LEVELS",
    "NOT_SETTINGS",
    "ServeOptions",
    "load_settings",
    "options_as_settings",
    "parse_directory_ids",
    "parse_serve",
    "ready_path",
    "run_broker",
    "start_logging",
]

NOT_SETTINGS: Final = (
    "BARNABAS_BOOTSTRAP",
    "BARNABAS_CLIENT_CONFIG",
    "BARNABAS_DATA_DIR",
    "BARNABAS_LISTEN",
    "BARNABAS_PROFILE",
    "BARNABAS_TEST_BROKER",
    "BARNABAS_TIMEOUT",
)
"""Environment variables of Barnabas that are no settings of a broker."""
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

SINGLE: Final = {
    "--listen": "listen",
    "--ready-file": "ready_file",
    "--node-id": "node_id",
    "--registry": "registry",
    "--zookeeper": "zookeeper",
    "--log-level": "log_level",
}
REPEATED: Final = {
    "--data-dir": "data_dir",
    "--config": "config",
    "--set": "settings",
    "--lost-dir": "lost_dir",
    "--accept-old-dir": "accept_old_dir",
}


class ServeOptions(NamedTuple):
    """The options of the command line; None and () for those that are not given."""

    data_dir: tuple[str, ...] = ()
    listen: str | None = None
    ready_file: str | None = None
    config: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    node_id: str | None = None
    log_level: str | None = None
    json: bool = False
    lost_dir: tuple[str, ...] = ()
    registry: str | None = None
    zookeeper: str | None = None
    accept_old_dir: tuple[str, ...] = ()


def parse_serve(arguments: Sequence[str]) -> ServeOptions | None:
    """Parses `--name value` and `--name=value`. Returns None for anything else: `barnabas.cli.serve.serve` reports
    what is wrong."""
    try:
        "".join(arguments).encode()
    except UnicodeEncodeError:
        return None  # bytes that are not UTF-8
    single: dict[str, Any] = {}
    repeated: dict[str, list[str]] = {}
    words = iter(arguments)
    for word in words:
        if word == "--json":
            single["json"] = True
            continue
        name, equals, value = word.partition("=")
        if name not in SINGLE and name not in REPEATED:
            return None
        if not equals:
            following = next(words, None)
            if following is None or following.startswith("--"):
                return None
            value = following
        if name in SINGLE:
            single[SINGLE[name]] = value
        else:
            repeated.setdefault(REPEATED[name], []).append(value)
    many: dict[str, Any] = {name: tuple(values) for name, values in repeated.items()}
    return ServeOptions(**single, **many)


def run_broker(options: ServeOptions) -> int:
    """Loads the settings and serves until SIGTERM or SIGINT. Raises UsageError before the broker is ready."""
    from barnabas.broker.process.serving import run

    start_logging(options.log_level)
    loaded = load_settings(options)
    for warning in loaded.warnings:
        print(f"barnabas: {warning}", file=sys.stderr)
    return run(
        loaded.config,
        ready_file=ready_path(options.ready_file),
        ready_as_json=options.json,
        lost_directories=parse_directory_ids(options.lost_dir),
        accepted_directories=parse_directory_ids(options.accept_old_dir, "--accept-old-dir"),
    )


def ready_path(text: str | None) -> Path | None:
    """Returns the path of the ready file. Raises UsageError if it cannot be written."""
    from barnabas.errors import UsageError

    path = None if text is None else Path(text)
    if path is not None and not path.absolute().parent.is_dir():
        raise UsageError(f"--ready-file {path}: its directory does not exist; create it first")
    return path


def load_settings(options: ServeOptions, *, defaults: Mapping[str, str] | None = None) -> "LoadedConfig":
    """Reads the settings of `barnabas serve` from its file, the environment and its options. Raises UsageError."""
    from barnabas.config.sources import load

    return load(
        options.config,
        None,
        options.settings,
        options=options_as_settings(options),
        not_settings=NOT_SETTINGS,
        defaults=defaults,
    )


def options_as_settings(options: ServeOptions) -> dict[str, str]:
    """Returns the options that stand for settings, under Kafka's names."""
    settings: dict[str, str] = {}
    if options.data_dir:
        settings["log.dirs"] = ",".join(options.data_dir)
    if options.listen is not None:
        settings["listeners"] = ",".join(_listener(part.strip()) for part in options.listen.split(","))
    if options.node_id is not None:
        settings["node.id"] = options.node_id
    if options.registry is not None:
        settings["registry.file"] = options.registry
    if options.zookeeper is not None:
        settings["zookeeper.connect"] = options.zookeeper
    return settings


def parse_directory_ids(texts: Iterable[str], option: str = "--lost-dir") -> "list[UUID]":
    """Parses the values of an option that names data directories. Raises UsageError."""
    return [_directory_id(text, option) for text in texts]


def _directory_id(text: str, option: str) -> "UUID":
    from barnabas.errors import UsageError
    from barnabas.log.directories.checkpoints import parse_topic_id

    try:
        return parse_topic_id(text)
    except ValueError:
        raise UsageError(
            f"{option} {text}: must be a directory.id, as the start that was refused names it: 22 characters"
        ) from None


def _listener(address: str) -> str:
    """Returns NAME://HOST:PORT as it is, and a plaintext listener for `127.0.0.1:9092` and `:9092`."""
    from barnabas.errors import UsageError

    if "://" in address:
        return address
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"--listen {address}: must be HOST:PORT, such as --listen 127.0.0.1:9092 (port 0: any free one)"
        )
    return f"PLAINTEXT://{host}:{port}"


def start_logging(level: str | None, stream: "SupportsWrite[str] | None" = None) -> None:
    """Logs to the stream, standard error if None, with `--log-level`. Raises UsageError."""
    import logging

    from barnabas.broker.process.log_format import OneLineFormatter
    from barnabas.errors import UsageError

    level = level or os.environ.get("BARNABAS_LOG_LEVEL") or "info"
    if level.lower() not in LOG_LEVELS:
        raise UsageError(f"--log-level {level}: must be one of {', '.join(LOG_LEVELS)}")
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
