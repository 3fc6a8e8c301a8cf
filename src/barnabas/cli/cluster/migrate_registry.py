"""`barnabas cluster migrate-registry`: moves a cluster's registry from a file to ZooKeeper, and back."""

import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

from barnabas.cli.framework.app import App, Option
from barnabas.cli.framework.options import Json
from barnabas.cli.framework.output import CommandFailed, show
from barnabas.cli.framework.resources import plural
from barnabas.cli.serve.start_broker import NOT_SETTINGS
from barnabas.registry.content import RegistryContent
from barnabas.registry.migration import Moved, RegistryStore, move_registry

__all__ = ["register"]

_ZOOKEEPER: Final = re.compile(r"[^/\s]+:\d+(,[^/\s]+:\d+)*(/.*)?")
_SHOWN_MAX: Final = 20

Place = "FILE|HOST:PORT,.../PATH"


def register(app: App) -> None:
    """Adds the command to `barnabas cluster`."""
    app.command(
        "migrate-registry",
        example="barnabas cluster migrate-registry --from data/registry.db --to zk1:2181,zk2:2181,zk3:2181/kafka\n"
        "barnabas cluster migrate-registry --from zk1:2181/kafka --to data/registry.db --config server.properties",
    )(migrate_registry)


def migrate_registry(
    source: Annotated[str, Option("--from", metavar=Place, help="The registry that the brokers have used.")],
    target: Annotated[
        str, Option("--to", metavar=Place, help="Where there is none: a file, or a path in ZooKeeper, with its port.")
    ],
    config: Annotated[
        list[str] | None,
        Option(
            metavar="FILE",
            takes_bytes=True,
            help="A server.properties with the zookeeper.* settings of the brokers; repeat for more.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="Such a setting, as of `barnabas serve`.")
    ] = None,
    json: Json = False,
) -> None:
    """Move the registry of a cluster from a file to ZooKeeper, back, or to another place. The brokers must be stopped.

    All of it is read, written, read back and compared. Brokers refuse the new place until it has all, and the old one
    from then on. What was interrupted is completed by the same command. Until the old place is given up, which comes
    last, brokers can also be started there again.
    """
    with (
        closing(_store("--from", source, config or (), settings or ())) as one,
        closing(_store("--to", target, config or (), settings or ())) as other,
    ):
        done = move_registry(one, other)
        report = {"from": one.name, "to": other.name, **_counts(done.content), "differences": list(done.differences)}
    show(report, json, lambda: _text(report, done))
    if done.differences:
        raise CommandFailed(f"{report['to']} is not what was written, and not used; {report['from']} is what it was")


def _store(option: str, place: str, files: Sequence[str], settings: Sequence[str]) -> RegistryStore:
    """Opens the store that an option names."""
    if not _ZOOKEEPER.fullmatch(place):
        from barnabas.registry.embedded_store import EmbeddedStore

        return EmbeddedStore(Path(place), option=option)
    from barnabas.broker.startup.zookeeper_start import open_zookeeper_store
    from barnabas.config.sources import load

    options = {"zookeeper.connect": place}
    return open_zookeeper_store(load(files, None, settings, options=options, not_settings=NOT_SETTINGS).config)


def _counts(content: RegistryContent) -> dict[str, Any]:
    image = content.image
    return {
        "cluster_id": image.cluster_id,
        "topics": len(image.topics),
        "partitions": image.partition_count,
        "settings": sum(map(len, (*image.topic_configs.values(), *image.broker_configs.values()))),
        "brokers": len(image.brokers),
        "leader_changes": len(content.leader_changes),
    }


def _text(report: dict[str, Any], done: Moved) -> str:
    counts = ", ".join(plural(report[f"{each}s"], each) for each in ("topic", "partition", "setting", "broker"))
    if not done.differences:
        option = "--zookeeper" if _ZOOKEEPER.fullmatch(report["to"]) else "--registry"
        return (
            f"moved the registry of cluster {report['cluster_id']} to {report['to']}: {counts}; read back without a "
            f"difference\nstart the brokers with {option} {report['to']}"
        )
    shown = done.differences[:_SHOWN_MAX]
    more = len(done.differences) - len(shown)
    return "\n".join([*shown, *([f"and {more} more differences"] if more else [])])
