"""Reads the settings of `barnabas serve --check` as a start does, and starts nothing."""

import sys
from collections.abc import Sequence

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

__all__ = ["check_settings"]


def check_settings(options: ServeOptions, count: int | None, racks: Sequence[str]) -> int:
    """Prints what is wrong, and what else a start would say. Looks at no data directory and at no other process."""
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()
    configs: Sequence[BrokerConfig] = ()
    try:
        start_logging(options.log_level)
        ready_path(options.ready_file)
        parse_directory_ids(options.lost_dir)
        loaded = load_settings(options, defaults=None if count is None else cluster_defaults(count))
        warnings = loaded.warnings
        configs = [loaded.config] if count is None else plan_brokers(loaded.config, count, racks)
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
