"""Reads the settings of `barnabas serve --check` as a start does, and starts nothing."""

import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from uuid import UUID

from barnabas.broker.startup.zookeeper_start import check_access
from barnabas.broker.supervisor.cluster_plan import cluster_defaults, plan_brokers
from barnabas.cli.exit_codes import OK, USAGE
from barnabas.cli.framework.output import print_json
from barnabas.cli.framework.resources import plural
from barnabas.cli.serve.start_broker import (
    ServeOptions,
    load_settings,
    parse_directory_ids,
    ready_path,
    start_logging,
)
from barnabas.config.broker import BrokerConfig
from barnabas.errors import UsageError, WrongSettings
from barnabas.log.directories.checkpoints import META_PROPERTIES, format_topic_id, parse_topic_id, read_properties

__all__ = ["check_settings"]


def check_settings(options: ServeOptions, count: int | None, racks: Sequence[str]) -> int:
    """Prints what is wrong, and what else a start would say. Looks at no other process, and at nothing in the data
    directories but their ids, for the options that name these."""
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()
    configs: Sequence[BrokerConfig] = ()
    try:
        start_logging(options.log_level)
        ready_path(options.ready_file)
        lost = parse_directory_ids(options.lost_dir)
        accepted = parse_directory_ids(options.accept_old_dir, "--accept-old-dir")
        loaded = load_settings(options, defaults=None if count is None else cluster_defaults(count))
        warnings = loaded.warnings
        configs = [loaded.config] if count is None else plan_brokers(loaded.config, count, racks)
        if lost or accepted:
            errors = _wrong_directory_ids(configs, lost, accepted)
        if loaded.config.zookeeper_connect is not None:
            check_access(loaded.config)
    except WrongSettings as error:
        errors, warnings = error.findings, error.warnings
    except UsageError as error:
        errors = (str(error),)
    if options.json:
        print_json({"ok": not errors, "errors": list(errors), "warnings": list(warnings)})
    else:
        for finding in (*errors, *warnings):
            print(f"barnabas: {finding}", file=sys.stderr)
        if not errors:
            endpoints = ", ".join(str(endpoint) for config in configs for endpoint in config.endpoints)
            print(f"nothing is wrong with the settings of {plural(len(configs), 'broker')}: {endpoints}")
    return USAGE if errors else OK


def _wrong_directory_ids(
    configs: Sequence[BrokerConfig], lost: Collection[UUID], accepted: Collection[UUID]
) -> list[str]:
    """Returns what is wrong with data directories that are accepted and not there, or lost and there."""
    there: dict[UUID, str] = {}
    for path in (path for config in configs for path in config.data_dirs):
        with suppress(UsageError, KeyError, ValueError):  # a start says what is wrong with it
            there[parse_topic_id(read_properties(f"{path}/{META_PROPERTIES}")["directory.id"])] = path
    known = ", ".join(f"{format_topic_id(each)} ({path})" for each, path in there.items()) or "none of these has one"
    findings = [
        f"--accept-old-dir={format_topic_id(each)}: must be the directory.id of a data directory in log.dirs: {known}"
        for each in accepted
        if each not in there
    ]
    return findings + [
        f"--lost-dir={format_topic_id(each)}: it is there, at {there[each]}; start without the option"
        for each in lost
        if each in there
    ]
