"""What the files in deploy/ ask for is there: options, settings, commands, the same ports and paths in all."""

import re
import shlex
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from barnabas.broker.cluster.member import LEAVE_MAX_S
from barnabas.cli.exit_codes import USAGE
from barnabas.cli.framework.app import parse
from barnabas.cli.main import COMMANDS
from barnabas.config.broker import BrokerConfig
from barnabas.config.sources import parse_properties
from barnabas.errors import UsageError
from certificates import make_certificate
from deploy.deployed import (
    COMPOSE,
    CONTAINERFILE,
    DEPLOY,
    KUBERNETES,
    KUBERNETES_ROLL,
    KUBERNETES_ZOOKEEPER,
    PROPERTIES,
    UNIT,
    Container,
    compose_containers,
    config_of,
    instructions,
    pod_spec,
    pods,
    read_compose,
    read_image,
    read_kubernetes,
    read_unit,
)

ROOT = DEPLOY.parent
CONTAINERS = [*compose_containers(), *pods("shop")]


def options_of(command: list[str]) -> dict[str, object]:
    """Returns the options of a command of Barnabas, as the command line parses them."""
    program, name, *rest = command
    assert program == "barnabas"
    app = COMMANDS[name].load()
    key = max((key for key in app.commands if rest[: len(key.split())] == key.split()), key=len)
    return parse(app.commands[key], f"barnabas {name}", rest[len(key.split()) :])


# --- the container file -----------------------------------------------------------------------------------------------


def test_the_image_runs_one_broker_alone() -> None:
    image = read_image()
    config = config_of(image.entrypoint, image.environment)
    assert [(each.host, each.port) for each in config.endpoints] == [("0.0.0.0", image.port)]
    (directory,) = config.data_dirs
    assert Path(directory).parent == Path(image.volume), "the volume itself may have a lost+found"
    assert options_of(image.healthcheck)["bootstrap"] is None, "127.0.0.1:9092 is asked"
    assert image.port == 9092
    assert image.stop_signal == "SIGTERM"


def test_the_image_has_no_compiler_and_what_is_copied_into_it_is_sent() -> None:
    stages = [dict(instructions(stage)) for stage in (0, 1)]
    assert "gcc" in " ".join(arguments for _, arguments in instructions(0))
    assert "apt" not in " ".join(arguments for _, arguments in instructions(1))
    assert stages[0]["FROM"].removesuffix(" AS build") == stages[1]["FROM"], "the environment needs its Python"
    copied = [word for name, words in instructions(0) if name == "COPY" for word in words.split()[:-1]]
    sent = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    assert sorted(copied) == sorted(sent)
    assert all((ROOT / name).exists() for name in copied)


# --- brokers in containers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container.name)
def test_a_container_starts_a_broker_that_the_others_and_clients_reach(container: Container) -> None:
    config = container.config
    advertised = {each.name: (each.host, each.port) for each in config.advertised_endpoints}
    listening = {each.name: each.port for each in config.endpoints}
    (host,) = container.hosts
    assert advertised.pop("PLAINTEXT") == (host, listening.pop("PLAINTEXT"))
    outside = {port: number for number, port in container.published.items()}
    assert advertised == {name: ("localhost", outside[port]) for name, port in listening.items()}
    told = config.advertised_inter_broker_endpoint
    assert told is not None
    assert (told.host, told.port) == (host, config.inter_broker_endpoint.port)
    assert config.inter_broker_endpoint.host == "0.0.0.0"
    assert config.data_dirs == tuple(read_image().environment["BARNABAS_LOG_DIRS"].split(","))
    replicas, minimum = config.default_replication_factor, config.min_insync_replicas
    assert (replicas, minimum) == (3, 2)
    # The probe asks this broker, as its address in the container is the default.
    assert options_of(container.probe)["bootstrap"] is None
    assert container.probe == read_image().healthcheck


def test_the_brokers_are_three_of_one_cluster() -> None:
    for containers, numbers in [(compose_containers(), [1, 2, 3]), (pods("shop"), [0, 1, 2])]:
        assert [container.config.node_id for container in containers] == numbers
        assert len({container.config.zookeeper_connect for container in containers}) == 1


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container.name)
def test_a_stop_has_time_enough(container: Container) -> None:
    assert container.stop_s >= 10 * LEAVE_MAX_S


def test_the_compose_file_agrees_with_the_image() -> None:
    compose, image = read_compose(), read_image()
    brokers = {name: each for name, each in compose["services"].items() if each["image"] == "barnabas"}
    for name, service in brokers.items():
        assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
        assert ROOT / service["build"]["dockerfile"] == CONTAINERFILE
        assert service["volumes"] == [f"{name}:{image.volume}"]
        assert service["hostname"] == name
        assert service["depends_on"] == {"zookeeper": {"condition": "service_healthy"}}
    used = [volume.partition(":")[0] for service in compose["services"].values() for volume in service["volumes"]]
    assert sorted(used) == sorted(compose["volumes"]), "each volume is there and has one user"
    (connect,) = {container.config.zookeeper_connect for container in compose_containers()}
    assert connect is not None
    assert connect.partition("/")[0] == "zookeeper:2181"


def test_the_manifest_agrees_with_the_image_and_with_itself() -> None:
    found, spec, image = read_kubernetes(), pod_spec(), read_image()
    stateful_set = found["StatefulSet", "barnabas"]["spec"]
    (container,) = spec["containers"]
    assert {spec["securityContext"][name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {
        int(number) for number in image.user.split(":")
    }
    claims = [claim["metadata"]["name"] for claim in stateful_set["volumeClaimTemplates"]]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert [mounts[claim] for claim in claims] == [image.volume]
    assert sorted(mounts) == sorted([*claims, *(volume["name"] for volume in spec["volumes"])])

    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    config = pods("shop")[0].config
    assert ports == {"clients": config.endpoints[0].port, "brokers": config.inter_broker_endpoint.port}
    headless, bootstrap = found["Service", "barnabas"]["spec"], found["Service", "barnabas-bootstrap"]["spec"]
    assert {port["name"]: port["port"] for port in headless["ports"]} == ports
    assert [ports[port["targetPort"]] for port in bootstrap["ports"]] == [9092]
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
    assert stateful_set["serviceName"] == "barnabas"

    labels = stateful_set["template"]["metadata"]["labels"]
    budget = found["PodDisruptionBudget", "barnabas"]["spec"]
    assert budget["maxUnavailable"] <= config.default_replication_factor - config.min_insync_replicas
    assert stateful_set["selector"]["matchLabels"] == budget["selector"]["matchLabels"] == labels
    assert headless["selector"] == bootstrap["selector"] == labels
    (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"] == labels


def test_a_container_may_do_nothing_besides_its_work() -> None:
    """By the rules of Kubernetes for restricted pods, and in Compose as far as it has them."""
    user, group = read_image().user.split(":")
    made = " ".join(arguments for name, arguments in instructions() if name == "RUN")
    assert f"groupadd --gid {group} barnabas" in made
    assert f"useradd --uid {user} --gid {group} " in made
    for service in read_compose()["services"].values():
        if service["image"] == "barnabas":
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
            assert service["security_opt"] == ["no-new-privileges:true"]
    spec = pod_spec()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_only_clients_reach_the_clients_port_and_only_brokers_that_of_brokers_and_zookeeper() -> None:
    brokers = {"podSelector": {"matchLabels": pod_labels()}}
    policy = read_kubernetes()["NetworkPolicy", "barnabas"]["spec"]
    assert policy["podSelector"]["matchLabels"] == pod_labels()
    clients, peers = policy["ingress"]
    assert clients["ports"] == [{"port": "clients"}]
    assert {"podSelector": {}} in clients["from"]
    assert (peers["from"], peers["ports"]) == ([brokers], [{"port": "brokers"}])

    found = read_kubernetes(KUBERNETES_ZOOKEEPER)
    policy = found["NetworkPolicy", "zookeeper"]["spec"]
    (service,) = found["Service", "zookeeper"]["spec"]["ports"]
    assert policy["ingress"] == [{"from": [brokers], "ports": [{"port": service["port"]}]}]
    labels = found["StatefulSet", "zookeeper"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels == found["Service", "zookeeper"]["spec"]["selector"]


def pod_labels() -> dict[str, str]:
    labels: dict[str, str] = read_kubernetes()["StatefulSet", "barnabas"]["spec"]["template"]["metadata"]["labels"]
    return labels


def test_the_zookeeper_to_start_with_is_where_the_brokers_look_for_it_and_is_probed_as_that_of_compose() -> None:
    found = read_kubernetes(KUBERNETES_ZOOKEEPER)
    (port,) = found["Service", "zookeeper"]["spec"]["ports"]
    assert (pods("shop")[0].config.zookeeper_connect or "").partition("/")[0] == f"zookeeper:{port['port']}"
    (container,) = found["StatefulSet", "zookeeper"]["spec"]["template"]["spec"]["containers"]
    service = read_compose()["services"]["zookeeper"]
    assert container["image"] == service["image"]
    assert ["CMD", *container["readinessProbe"]["exec"]["command"]] == service["healthcheck"]["test"]
    assert [port["containerPort"] for port in container["ports"]] == [2181]


def test_a_broker_is_in_the_rack_that_its_zone_is() -> None:
    assert [pod.config.broker_rack for pod in pods("shop")] == ["zone-0", "zone-1", "zone-2"]


def test_the_job_that_replaces_the_pods_may_delete_these_and_nothing_else() -> None:
    found, stateful_set = read_kubernetes(KUBERNETES_ROLL), read_kubernetes()["StatefulSet", "barnabas"]["spec"]
    assert found["Role", "barnabas-roll"]["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["pods"],
            "resourceNames": [f"barnabas-{index}" for index in range(stateful_set["replicas"])],
            "verbs": ["delete"],
        }
    ]
    (subject,) = found["RoleBinding", "barnabas-roll"]["subjects"]
    spec = found["Job", "barnabas-roll"]["spec"]["template"]["spec"]
    assert subject["name"] == spec["serviceAccountName"] == "barnabas-roll"
    (container,) = spec["containers"]
    assert container["image"] == pod_spec()["containers"][0]["image"]
    options = options_of([*container["command"], *container["args"]])
    assert isinstance(options["restart_command"], str)
    python, script, pod = options["restart_command"].split()
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "roll"]
    assert (python, pod) == ("python", "barnabas-{id}")
    assert Path(script).parent == Path(mount["mountPath"])
    assert Path(script).name in found["ConfigMap", "barnabas-roll"]["data"]
    assert "barnabas-bootstrap:9092" in container["args"]


def test_the_script_of_the_job_deletes_the_pod_and_fails_where_it_may_not(tmp_path: Path) -> None:
    """With the account of a pod, and the API of Kubernetes as far as it goes."""
    asked: list[tuple[str, str | None]] = []

    class Api(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(200 if self.path.endswith("barnabas-1") else 403)
            self.end_headers()

    account = tmp_path / "account"
    account.mkdir()
    (account / "namespace").write_text("shop")
    (account / "token").write_text("secret")
    own = make_certificate(tmp_path, "api")
    (account / "ca.crt").write_bytes(own.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        script = read_kubernetes(KUBERNETES_ROLL)["ConfigMap", "barnabas-roll"]["data"]["delete_pod.py"]
        for there, here in {
            "/var/run/secrets/kubernetes.io/serviceaccount": str(account),
            "kubernetes.default.svc": f"127.0.0.1:{server.server_port}",
        }.items():
            assert there in script
            script = script.replace(there, here)
        codes = [
            subprocess.run([sys.executable, "-c", script, pod], capture_output=True, timeout=60).returncode
            for pod in ("barnabas-1", "barnabas-2")
        ]
        server.shutdown()
    assert codes == [0, 1]
    pods_of_shop = "/api/v1/namespaces/shop/pods"
    assert asked == [(f"{pods_of_shop}/barnabas-{index}", "Bearer secret") for index in (1, 2)]


def test_the_probes_of_the_manifest() -> None:
    (container,) = pod_spec()["containers"]
    startup, readiness, liveness = (container[f"{name}Probe"] for name in ("startup", "readiness", "liveness"))
    assert startup["exec"] == readiness["exec"]
    timeout_s = options_of(readiness["exec"]["command"])["timeout"]
    assert isinstance(timeout_s, float)
    # two answers, and the start of a Python process; a probe that Kubernetes cuts off says nothing about why
    assert {startup["timeoutSeconds"], readiness["timeoutSeconds"]} == {2 * timeout_s + 2}
    assert startup["periodSeconds"] * startup["failureThreshold"] == 3600
    assert liveness["tcpSocket"]["port"] == "clients"
    assert "exec" not in liveness, "neither ZooKeeper nor other brokers may have a broker killed"


def test_kubernetes_must_not_set_variables_of_its_own_for_a_service_of_this_name() -> None:
    assert pod_spec()["enableServiceLinks"] is False
    links = {"BARNABAS_BOOTSTRAP_SERVICE_HOST": "10.0.0.1"}
    pod = pods("shop")[0]
    with pytest.raises(UsageError, match="BARNABAS_BOOTSTRAP_SERVICE_HOST"):
        config_of(pod.command, pod.environment | links)


# --- a broker under systemd -------------------------------------------------------------------------------------------


def test_the_unit_starts_a_broker_with_the_properties_beside_it() -> None:
    unit = read_unit()
    command = shlex.split(unit["ExecStart"])
    properties = command[command.index("--config") + 1]
    assert f"deploy/{PROPERTIES.name} {properties}" in UNIT.read_text(), "the commands above put it there"
    config = config_of([str(PROPERTIES) if word == properties else word for word in command], {})
    state = Path("/var/lib", unit["StateDirectory"])
    assert [Path(directory).parent for directory in config.data_dirs] == [state]
    assert Path(unit["WorkingDirectory"]) == state
    assert int(unit["TimeoutStopSec"]) == compose_containers()[0].stop_s
    assert "node.id" not in config.static, "ZooKeeper gives each machine its own"
    assert config.inter_broker_endpoint.port == pods("shop")[0].config.inter_broker_endpoint.port


def test_the_unit_starts_again_what_may_succeed_later_alone() -> None:
    unit = read_unit()
    assert unit["Restart"] == "on-failure"
    assert [int(code) for code in unit["RestartPreventExitStatus"].split()] == [USAGE]


def test_every_setting_of_the_properties_is_one() -> None:
    settings = parse_properties(PROPERTIES.read_text())
    BrokerConfig.of(settings)
    with pytest.raises(UsageError):
        BrokerConfig.of({**settings, "min.insync.replica": "2"})


# --- what the comments and the README say -----------------------------------------------------------------------------


def commands_in(path: Path) -> list[list[str]]:
    """Returns the commands of Barnabas that a file shows."""
    shown = [line.lstrip("# ").removeprefix("$ ") for line in path.read_text().splitlines()]
    return [shlex.split(line) for line in shown if re.match(r"barnabas [a-z]+ ", line)]


@pytest.mark.parametrize("path", [COMPOSE, DEPLOY / "README.md"], ids=lambda path: path.name)
def test_the_commands_that_are_shown_can_be_typed(path: Path) -> None:
    commands = commands_in(path)
    assert commands
    for command in commands:
        options_of(command)


def test_the_readme_speaks_of_every_file_and_of_no_other() -> None:
    text = (DEPLOY / "README.md").read_text()
    named = set(re.findall(r"\]\(([\w.-]+)\)", text))
    assert named == {path.name for path in DEPLOY.iterdir()} - {"README.md"}
    for path in (CONTAINERFILE, COMPOSE, KUBERNETES, KUBERNETES_ZOOKEEPER, KUBERNETES_ROLL, UNIT):
        assert f"deploy/{path.name}" in path.read_text(), "its first lines say how it is used"
