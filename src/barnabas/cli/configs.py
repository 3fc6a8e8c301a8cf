"""`barnabas configs`: show and change settings of topics and brokers."""

from collections.abc import Sequence
from typing import Annotated

from barnabas.cli.app import App, Argument, Option
from barnabas.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Client,
    Json,
    Timeout,
    connect_admin,
    parse_settings,
)
from barnabas.cli.output import print_json, table
from barnabas.client.core.admin.configs import RESOURCE_TYPES, ConfigEntry, ConfigResource
from barnabas.errors import UsageError

app = App("Show and change settings of topics and brokers.")

Kind = Annotated[str, Argument("topic|broker|group", "What has the settings.")]
Name = Annotated[str, Argument("NAME", "Topic, node id, or group; - for all brokers together.")]


def _kind(kind: str) -> str:
    singular = kind.removesuffix("s") if kind != "client-metrics" else kind
    if singular not in RESOURCE_TYPES:
        raise UsageError(f"configs: {kind!r} has no settings; use {', '.join(RESOURCE_TYPES)}")
    return singular


def _name(kind: str, name: str) -> str:
    return "" if kind == "broker" and name == "-" else name


@app.command()
def describe(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str] | None, Argument("SETTING", "These only.")] = None,
    all_settings: Annotated[bool, Option("--all", "-a", help="Those at their defaults, too.")] = False,
    documentation: Annotated[bool, Option("--doc", help="With what each setting means.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    client: Client = None,
    json: Json = False,
) -> None:
    """Show settings that were changed, or the named ones, or --all."""
    kind = _kind(kind)
    with connect_admin(bootstrap, timeout, client) as admin:
        if kind == "topic":
            admin.describe_topics(name)  # for an unknown topic Kafka's answer says less
        where = ConfigResource(kind, _name(kind, name))
        found = admin.describe_configs([where], keys=keys or None, documentation=documentation)
    entries = list(found[where].values())
    if not all_settings and not keys:
        entries = [entry for entry in entries if entry.source != "DEFAULT_CONFIG"]
    entries.sort(key=lambda entry: entry.name)
    if json:
        print_json([_as_dict(entry) for entry in entries])
    elif entries:
        print(_text(entries, documentation))
    else:
        print(f"{kind} {name} has no changed settings; --all shows the defaults")


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


@app.command("set")
def set_values(
    kind: Kind,
    name: Name,
    settings: Annotated[list[str], Argument("SETTING=VALUE")],
    validate_only: Annotated[bool, Option("--validate-only", help="Check, change nothing.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    client: Client = None,
    json: Json = False,
) -> None:
    """Change settings; those not named stay as they are."""
    kind = _kind(kind)
    values = parse_settings(settings, "configs set")
    with connect_admin(bootstrap, timeout, client) as admin:
        admin.alter_configs({(kind, _name(kind, name)): values}, validate_only=validate_only)
    done = "checked" if validate_only else "set"
    if json:
        print_json({"kind": kind, "name": name, "result": done, "settings": values})
    else:
        print(f"{done} {', '.join(f'{key}={value}' for key, value in values.items())} on {kind} {name}")


@app.command()
def delete(
    kind: Kind,
    name: Name,
    settings: Annotated[list[str], Argument("SETTING")],
    validate_only: Annotated[bool, Option("--validate-only", help="Check, change nothing.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    client: Client = None,
    json: Json = False,
) -> None:
    """Give settings back their defaults."""
    kind = _kind(kind)
    with connect_admin(bootstrap, timeout, client) as admin:
        admin.alter_configs({(kind, _name(kind, name)): dict.fromkeys(settings)}, validate_only=validate_only)
    done = "checked" if validate_only else "deleted"
    if json:
        print_json({"kind": kind, "name": name, "result": done, "settings": settings})
    else:
        print(f"{done} {', '.join(settings)} on {kind} {name}")
