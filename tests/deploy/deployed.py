"""What the files in deploy/ say: the image of the container file, and the containers that the others make of it."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from barnabas.cli.serve.start_broker import NOT_SETTINGS, options_as_settings, parse_serve
from barnabas.config.broker import BrokerConfig
from barnabas.config.sources import load

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CONTAINERFILE = DEPLOY / "Containerfile"
COMPOSE = DEPLOY / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes.yaml"
KUBERNETES_ZOOKEEPER = DEPLOY / "kubernetes-zookeeper.yaml"
KUBERNETES_ROLL = DEPLOY / "kubernetes-roll.yaml"
UNIT = DEPLOY / "barnabas.service"
PROPERTIES = DEPLOY / "server.properties"


class Image(NamedTuple):
    """The last stage of the container file."""

    environment: dict[str, str]
    entrypoint: list[str]
    healthcheck: list[str]
    user: str
    volume: str
    port: int
    stop_signal: str


class Container(NamedTuple):
    """A container with a broker. `hosts` are the names by which others know it, `published` its ports on the host."""

    name: str
    hosts: list[str]
    environment: dict[str, str]
    command: list[str]
    probe: list[str]
    published: dict[int, int]
    stop_s: int

    @property
    def config(self) -> BrokerConfig:
        """The settings with which the broker starts. Raises UsageError."""
        return config_of(self.command, self.environment)


def config_of(command: list[str], environment: Mapping[str, str]) -> BrokerConfig:
    """Returns the settings of `barnabas serve ...`, by what reads them there. Raises UsageError."""
    program, serve, *arguments = command
    assert (Path(program).name, serve) == ("barnabas", "serve")
    options = parse_serve(arguments)
    assert options is not None, f"barnabas serve does not take {arguments}"
    loaded = load(
        options.config, environment, options.settings, options=options_as_settings(options), not_settings=NOT_SETTINGS
    )
    assert loaded.warnings == ()
    return loaded.config


def instructions(stage: int = -1) -> Iterator[tuple[str, str]]:
    """Yields name and arguments of the instructions of a stage of the container file."""
    text = re.sub(r"^\s*#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in re.split(r"^(?=FROM )", text, flags=re.MULTILINE)[1:][stage].splitlines():
        if line.strip():
            name, _, arguments = line.partition(" ")
            yield name, " ".join(arguments.split())


def read_image() -> Image:
    found = dict(instructions())
    environment = dict(
        word.split("=", 1) for name, words in instructions() if name == "ENV" for word in shlex.split(words)
    )
    return Image(
        environment,
        json.loads(found["ENTRYPOINT"]),
        json.loads(found["HEALTHCHECK"].partition(" CMD ")[2]),
        found["USER"],
        found["VOLUME"],
        int(found["EXPOSE"]),
        found["STOPSIGNAL"],
    )


def read_compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


def compose_containers() -> list[Container]:
    """Returns the brokers of the compose file."""
    image = read_image()
    return [
        Container(
            name,
            [name],
            {**image.environment, **service["environment"]},
            [*image.entrypoint, *service.get("command", [])],
            _of_exec(service["healthcheck"]["test"]),
            _published(service["ports"]),
            _seconds(service["stop_grace_period"]),
        )
        for name, service in read_compose()["services"].items()
        if service["image"] == "barnabas"
    ]


def _of_exec(test: list[str]) -> list[str]:
    kind, *command = test
    assert kind == "CMD"
    return command


def _published(ports: list[str]) -> dict[int, int]:
    split = [port.split(":") for port in ports]
    assert {address for address, _, _ in split} == {"127.0.0.1"}, "there are no passwords for clients"
    return {int(outside): int(inside) for _, outside, inside in split}


def _seconds(duration: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([sm])", duration).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


def read_kubernetes(path: Path = KUBERNETES) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the resources by kind and name."""
    found = list(yaml.safe_load_all(path.read_text()))
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod_spec() -> dict[str, Any]:
    spec: dict[str, Any] = read_kubernetes()["StatefulSet", "barnabas"]["spec"]["template"]["spec"]
    return spec


def pods(namespace: str) -> list[Container]:
    """Returns the pods of the StatefulSet as Kubernetes makes them."""
    image, stateful_set, spec = read_image(), read_kubernetes()["StatefulSet", "barnabas"]["spec"], pod_spec()
    (container,) = spec["containers"]
    assert "command" not in container
    found = []
    for index in range(stateful_set["replicas"]):
        name = f"barnabas-{index}"
        host = f"{name}.{stateful_set['serviceName']}.{namespace}.svc.cluster.local"
        fields = {
            "metadata.name": name,
            "metadata.namespace": namespace,
            "metadata.labels['apps.kubernetes.io/pod-index']": f"{index}",
            "metadata.labels['topology.kubernetes.io/zone']": f"zone-{index}",
        }
        environment = dict(image.environment)
        for each in container["env"]:
            if "value" in each:
                value = _expanded(each["value"], environment)
            else:
                value = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            environment[each["name"]] = value
        found.append(
            Container(
                name,
                [host],
                environment,
                [*image.entrypoint, *container.get("args", [])],
                container["readinessProbe"]["exec"]["command"],
                {},
                spec["terminationGracePeriodSeconds"],
            )
        )
    return found


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """Returns the text with the variables above it in the places of `$(NAME)`."""
    return re.sub(r"\$\((\w+)\)", lambda reference: environment[reference[1]], text)


def read_unit() -> dict[str, str]:
    """Returns the settings of the unit's section Service; of several with one name, the last."""
    lines = UNIT.read_text().partition("[Service]")[2].partition("[Install]")[0].splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
