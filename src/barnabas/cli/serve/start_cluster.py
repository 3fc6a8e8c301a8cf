"""Runs several brokers as one cluster: `barnabas serve --brokers 3`."""

import json
import logging
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.broker.process.resource_limits import settle_collector
from barnabas.broker.process.serving import remove_ready_file, tell_service_manager, write_ready_file
from barnabas.broker.supervisor.broker_process import BrokerProcess, preload
from barnabas.broker.supervisor.cluster_plan import (
    check_directories,
    cluster_defaults,
    left_out,
    plan_brokers,
    registry_file,
)
from barnabas.broker.supervisor.supervisor import Supervisor
from barnabas.cli.serve.start_broker import (
    ServeOptions,
    load_settings,
    parse_directory_ids,
    ready_path,
    start_logging,
)
from barnabas.config.broker import BrokerConfig
from barnabas.errors import UsageError
from barnabas.log.directories.space_reserve import SpaceReserve
from barnabas.records.compiled.installation import describe_installation, is_compiled
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import start_with_registry
from barnabas.version import __version__

__all__ = ["announce", "run_cluster"]

_OPENING_BYTES: Final = 256 * 1024
"""The free space that opening the registry needs."""


def run_cluster(options: ServeOptions, count: int, racks: Sequence[str]) -> int:
    """Runs so many brokers, in these racks if any are given, until SIGTERM or SIGINT. Raises UsageError before they are
    ready."""
    began = time.perf_counter()
    start_logging(options.log_level)
    loaded = load_settings(options, defaults=cluster_defaults(count))
    for warning in loaded.warnings:
        print(f"barnabas: {warning}", file=sys.stderr)
    ready_file = ready_path(options.ready_file)
    lost = parse_directory_ids(options.lost_dir)
    accepted = parse_directory_ids(options.accept_old_dir, "--accept-old-dir")
    configs = plan_brokers(loaded.config, count, racks)
    check_directories(loaded.config, configs)
    if further := left_out(loaded.config, count):
        print(
            f"barnabas: --brokers {count}: no broker is started for {', '.join(further)}, whose replicas are not in "
            "sync then; remove those of unregistered brokers",
            file=sys.stderr,
        )
    _make_directory(loaded.config.data_dirs[0])
    node_ids = [config.node_id for config in configs]
    announce(registry_file(loaded.config), node_ids, loaded.config.log_dir_reserve_bytes)

    def tell_ready(facts: Sequence[Mapping[str, Any]]) -> None:
        addresses = [address for each in facts for address in each["addresses"]]
        if ready_file is not None:
            write_ready_file(ready_file, addresses)
        node_ids = [each["node_id"] for each in facts]
        supervisor.say(_ready_line(loaded.config, addresses, node_ids, count, began, as_json=options.json))
        tell_service_manager("READY=1")

    brokers = [BrokerProcess(config, lambda: start_logging(options.log_level), lost, accepted) for config in configs]
    supervisor = Supervisor(brokers, tell_ready)
    start_logging(options.log_level, supervisor.log_stream)
    preload()
    settle_collector()  # a collection in a child would copy each page that it shares
    try:
        return supervisor.run()
    finally:
        start_logging(options.log_level)
        if ready_file is not None:
            remove_ready_file(ready_file, logging.getLogger("barnabas"))


def announce(registry: Path, node_ids: Collection[int], reserve_bytes: int = 0) -> None:
    """Tells the registry, made now if necessary, which brokers are to come: topics that are created before all of them
    are there get the replicas of all. On a full disk the reserve beside it has room for that."""
    with SpaceReserve(os.path.abspath(registry.parent), reserve_bytes).lent(_OPENING_BYTES):
        opened = EmbeddedRegistry(registry)
        try:
            with start_with_registry():
                opened.announce_brokers(node_ids)
        finally:
            opened.close()


def _make_directory(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise UsageError(f"log.dirs: {path} cannot be made: {error.strerror}; choose another with --data-dir") from None


def _ready_line(
    config: BrokerConfig, addresses: Sequence[str], node_ids: Sequence[int], count: int, began: float, *, as_json: bool
) -> str:
    ready_ms = (time.perf_counter() - began) * 1000
    if as_json:
        facts = {
            "event": "ready",
            "node_ids": node_ids,
            "addresses": addresses,
            "ready_ms": round(ready_ms),
            "data_dirs": list(config.data_dirs),
            "release": __version__,
            "compiled": is_compiled(),
        }
        return json.dumps(facts)
    missing = [str(number) for number in range(1, count + 1) if number not in node_ids]
    without = f" without broker{'s' if len(missing) != 1 else ''} {', '.join(missing)}" if missing else ""
    return (
        f"barnabas cluster of {count} broker{'s' if count != 1 else ''} is ready on {', '.join(addresses)}{without} "
        f"({ready_ms:.0f} ms, data in {', '.join(config.data_dirs)}, release {__version__}, "
        f"{describe_installation()})"
    )
