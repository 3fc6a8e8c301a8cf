"""`barnabas configs`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

from barnabas import Admin
from barnabas.cli.framework.app import App, Argument, Option, meant, way_out
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json, parse_settings
from barnabas.cli.framework.output import CommandFailed, print_json, show, table
from barnabas.cli.framework.resources import broker_ids, check_topic_name
from barnabas.client.admin.configs import RESOURCE_TYPES, ConfigEntry, ConfigResource
from barnabas.errors import UsageError

app = App("Show and change settings of topics, brokers and groups.")

SOURCES: Final = {
    "topic": "DYNAMIC_TOPIC_CONFIG",
    "broker": "DYNAMIC_BROKER_CONFIG",
    "broker-logger": "DYNAMIC_BROKER_LOGGER_CONFIG",
    "client-metrics": "DYNAMIC_CLIENT_METRICS_CONFIG",
    "group": "DYNAMIC_GROUP_CONFIG",
}
"""The source of a setting that was set on a resource of this type itself."""
ALL_BROKERS: Final = "-"

Kind = Annotated[str, Argument("topic|broker|group", "The type of the resource that has the settings.")]
Name = Annotated[str, Argument("NAME", "Topic, node id, or group; - for all brokers together.")]


class Resource(NamedTuple):
    """A resource as the command line names it."""

    kind: str
    name: str

    @property
    def key(self) -> ConfigResource:
        """The resource's name for the brokers."""
        return ConfigResource(self.kind, "" if self.is_all_brokers else self.name)

    @property
    def is_all_brokers(self) -> bool:
        return self.kind == "broker" and self.name == ALL_BROKERS

    @property
    def source(self) -> str:
        """The source of settings that were set on the resource itself."""
        return "DYNAMIC_DEFAULT_BROKER_CONFIG" if self.is_all_brokers else SOURCES[self.kind]

    def __str__(self) -> str:
        return "all brokers" if self.is_all_brokers else f"{self.kind} {self.name!r}"


def _resource(kind: str, name: str) -> Resource:
    """Raises UsageError."""
    known = meant(kind, RESOURCE_TYPES)
    if known is None:
        raise UsageError(f"configs: {kind!r} has no settings; use {', '.join(RESOURCE_TYPES)}")
    found = Resource(known, name)
    if known == "topic":
        check_topic_name(name)
    if known in ("broker", "broker-logger") and not found.is_all_brokers and not name.isdecimal():
        raise UsageError(f"configs: broker {name!r} is not a node id, such as 1; `barnabas brokers` lists them")
    return found


def _entries(admin: Admin, resource: Resource, *, documentation: bool = False) -> dict[str, ConfigEntry]:
    """Returns all settings of a resource that exists. Raises CommandFailed, KafkaError (within ItemsFailed)."""
    if resource.kind == "topic":
        admin.describe_topics(resource.name)  # Kafka's error for an unknown topic says less
    elif resource.key.name and resource.kind in ("broker", "broker-logger"):
        broker_ids(admin, [int(resource.name)])
    return admin.describe_configs([resource.key], documentation=documentation)[resource.key]


def _check_names(admin: Admin, resource: Resource, names: Iterable[str], entries: Mapping[str, ConfigEntry]) -> None:
    """Raises CommandFailed for an unknown setting."""
    known = set(entries)
    if resource.is_all_brokers:  # only settings that are set are described
        one = Resource("broker", str(broker_ids(admin, None)[0]))
        known |= set(_entries(admin, one))
    for name in names:
        if name in known:
            continue
        if not known:
            raise CommandFailed(f"{resource}: these brokers have no settings for {resource.kind}s")
        hint = way_out(name, known, f"`barnabas configs describe {' '.join(resource)} --all` shows what it has")
        raise CommandFailed(f"{resource} has no setting {name!r}; {hint}")


@app.command(example="barnabas configs describe topic orders\nbarnabas configs describe broker 1 --all")
def describe(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str] | None, Argument("SETTING", "Only these settings.")] = None,
    all_settings: Annotated[bool, Option("--all", "-a", help="Also settings at their defaults.")] = False,
    documentation: Annotated[bool, Option("--doc", help="Also say what each setting means.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Show the settings that were changed, or those that are named, or with --all every one."""
    resource = _resource(kind, name)
    with cluster.admin() as admin:
        found = _entries(admin, resource, documentation=documentation)
        _check_names(admin, resource, keys or (), found)
    entries = sorted(found.values())
    if keys:
        entries = [entry for entry in entries if entry.name in keys]
    elif not all_settings:
        entries = [entry for entry in entries if entry.source != "DEFAULT_CONFIG"]
    if json:
        print_json([_as_dict(entry) for entry in entries])
    elif entries:
        print(_text(entries, documentation))
    elif found:
        print(f"{resource} has no changed settings; --all shows the defaults")
    else:
        print(f"{resource} has no settings")


def _as_dict(entry: ConfigEntry) -> dict[str, object]:
    synonyms = [{"name": name, "value": value, "source": source} for name, value, source in entry.synonyms]
    return {**entry._asdict(), "synonyms": synonyms}


def _text(entries: Sequence[ConfigEntry], documentation: bool) -> str:
    rows = [
        (e.name, "(hidden)" if e.sensitive else e.value, e.source.lower().replace("_", " "), e.type.lower())
        for e in entries
    ]
    lines = table(("setting", "value", "from", "type"), rows).splitlines()
    if not documentation:
        return "\n".join(lines)
    out = lines[:1]
    for line, entry in zip(lines[1:], entries, strict=True):
        out += [line, f"    {entry.documentation or 'no description'}"]
    return "\n".join(out)


@app.command("set", example="barnabas configs set topic orders retention.ms=86400000")
def set_values(
    kind: Kind,
    name: Name,
    settings: Annotated[list[str], Argument("SETTING=VALUE", "A setting by Kafka's name, and its new value.")],
    validate_only: Annotated[bool, Option(help="Only check whether the change is possible.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Change settings; those that are not named stay as they are."""
    resource = _resource(kind, name)
    values = parse_settings(settings, "configs set")
    with cluster.admin() as admin:
        _check_names(admin, resource, values, _entries(admin, resource))
        admin.alter_configs({resource.key: values}, validate_only=validate_only)
    done = "checked" if validate_only else "set"
    pairs = ", ".join(f"{key}={value}" for key, value in values.items())
    text = f"{done} {pairs} on {resource}{_unchanged(validate_only)}"
    show({**resource._asdict(), "result": done, "settings": values}, json, lambda: text)


@app.command(example="barnabas configs delete topic orders retention.ms")
def delete(
    kind: Kind,
    name: Name,
    settings: Annotated[list[str], Argument("SETTING", "A setting by Kafka's name.")],
    if_set: Annotated[bool, Option(help="No error for settings that are not set.")] = False,
    validate_only: Annotated[bool, Option(help="Only check whether the change is possible.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Remove settings of a topic, broker or group, so that the defaults apply again."""
    resource = _resource(kind, name)
    with cluster.admin() as admin:
        entries = _entries(admin, resource)
        _check_names(admin, resource, settings, entries)
        there = [key for key in dict.fromkeys(settings) if key in entries and _is_set(entries[key], resource)]
        absent = [key for key in dict.fromkeys(settings) if key not in there]
        not_set = f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not set on {resource}"
        if absent and not if_set:
            raise CommandFailed(f"{not_set}; nothing was deleted")
        if there:
            admin.alter_configs({resource.key: dict.fromkeys(there)}, validate_only=validate_only)
    done = "checked" if validate_only else "deleted"
    if json:
        print_json({**resource._asdict(), "result": done, "settings": there, "not_set": absent})
        return
    if there:
        print(f"{done} {', '.join(there)} on {resource}{_unchanged(validate_only)}")
    if absent:
        print(not_set)


def _is_set(entry: ConfigEntry, resource: Resource) -> bool:
    """Returns whether the setting was set on the resource itself, even if another value is in force."""
    return resource.source in (entry.source, *(source for _, _, source in entry.synonyms))


def _unchanged(validate_only: bool) -> str:
    return "; nothing was changed" if validate_only else ""
