"""Builds the peers and tools of benchmarks and conformance runs once in ``build/``, from ordinary registries.

Apache Kafka comes by Maven, librdkafka (its benchmark client and its test-runner) from Debian's source package, kfake
and franz-go's own suite by the Go module proxy. Nothing is installed into the system. A missing part raises
:class:`PeerUnavailable` with one line that says what is missing and how to get it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("BARNABAS_BUILD_DIR", ROOT / "build"))

KAFKA_VERSION = os.environ.get("BARNABAS_TEST_KAFKA", "4.4.0")
"""The release that is the measure of tests and benchmarks. `make test-interop-kafka-before` names another one."""
KAFKA_FROM_4_4 = tuple(map(int, KAFKA_VERSION.split(".")[:2])) >= (4, 4)
LIBRDKAFKA_VERSION = "2.0.2"
LIBRDKAFKA_PACKAGE = f"librdkafka={LIBRDKAFKA_VERSION}-1"
FRANZ_GO_VERSION = "v1.22.2"
KFAKE_VERSION = "v0.0.0-20260918054303-01f206a7e32c"

ZOOKEEPER_JARS = ("zookeeper-*.jar", "netty-*.jar", "slf4j-api-*.jar", "metrics-core-*.jar", "snappy-java-*.jar")

DEBIAN_PACKAGE_OF_TOOL = {
    "apt-get": "apt",
    "dpkg-source": "dpkg-dev",
    "g++": "g++",
    "gcc": "gcc",
    "go": "golang",
    "java": "default-jre-headless",
    "javac": "default-jdk-headless",
    "kcat": "kcat",
    "make": "make",
    "mvn": "maven",
    "unshare": "util-linux",
}

PACKAGE_OF_HEADER = {
    "openssl/ssl.h": "libssl-dev",
    "rapidjson/document.h": "rapidjson-dev",
    "zlib.h": "zlib1g-dev",
    "zstd.h": "libzstd-dev",
}

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas.bench</groupId>
  <artifactId>kafka-peer</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

# Kafka's own scripts start the broker with these flags (kafka-server-start.sh, kafka-run-class.sh).
KAFKA_SCRIPT = """#!/bin/sh
# {name} PORT DATADIR [NAME=VALUE ...]: formats DATADIR when it is new, then runs Apache Kafka (KRaft, one node) in the
# foreground; later settings win
set -e
port=$1; mkdir -p "$2"; data=$(readlink -f "$2"); controller=$((port + 1)); shift 2
cat > "$data.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:$controller
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$data
num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
PROPERTIES
[ $# = 0 ] || printf '%s\n' "$@" >> "$data.properties"
[ -f "$data/meta.properties" ] ||
    java -cp '{libs}/*' kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qg -c "$data.properties"
exec java -Xms1g -Xmx1g -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \\
    -cp '{libs}/*' kafka.Kafka "$data.properties"
"""

KAFKA_NODE_SCRIPT = """#!/bin/sh
# {name} ID DATADIR PORT,... CONTROLLERPORT,... [NAME=VALUE ...]: the same for node ID (1, 2, ...) of a cluster of as
# many nodes as there are ports, each a broker and a controller; three replicas, every timeout Kafka's default
set -e
id=$1; mkdir -p "$2"; data=$(readlink -f "$2"); ports=$3; controllers=$4; shift 4
port=$(echo "$ports" | cut -d, -f"$id"); controller=$(echo "$controllers" | cut -d, -f"$id")
voters=$(echo "$controllers" | tr , '\\n' | awk '{{printf "%s%d@127.0.0.1:%s", (NR > 1 ? "," : ""), NR, $1}}')
cat > "$data.properties" <<PROPERTIES
process.roles=broker,controller
node.id=$id
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
controller.quorum.voters=$voters
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$data
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
group.initial.rebalance.delay.ms=0
PROPERTIES
[ $# = 0 ] || printf '%s\n' "$@" >> "$data.properties"
[ -f "$data/meta.properties" ] || java -XX:TieredStopAtLevel=1 -cp '{libs}/*' \\
    kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qg -c "$data.properties"
exec java -Xms512m -Xmx512m -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \\
    -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true -cp '{libs}/*' kafka.Kafka "$data.properties"
"""

KFAKE_MAIN = """package main

import (
\t"os"
\t"os/signal"
\t"strconv"
\t"syscall"

\t"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
\tport, err := strconv.Atoi(os.Args[1])
\tif err != nil {
\t\tpanic(err)
\t}
\tcluster, err := kfake.NewCluster(kfake.Ports(port), kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(),
\t\tkfake.DefaultNumPartitions(4))
\tif err != nil {
\t\tpanic(err)
\t}
\tdefer cluster.Close()
\tstop := make(chan os.Signal, 1)
\tsignal.Notify(stop, os.Interrupt, syscall.SIGTERM)
\t<-stop
}
"""

CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand" if KAFKA_FROM_4_4 else "kafka.admin.ConfigCommand"
KAFKA_TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": CONFIG_COMMAND,
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}


class PeerUnavailable(Exception):
    """A peer or tool cannot be made on this machine; the message is one line with the way out."""


def make_available(specs: str, make: Callable[[str], T]) -> tuple[list[T], list[str]]:
    """Makes what each of the comma-separated specs stands for. Returns also the reasons why some are left out. Raises
    ``PeerUnavailable`` if all are."""
    made: list[T] = []
    skipped: list[str] = []
    for spec in specs.split(","):
        try:
            made.append(make(spec))
        except PeerUnavailable as reason:
            skipped.append(f"{spec}: {reason}")
            print(f"skipped {skipped[-1]}", file=sys.stderr)
    if not made:
        raise PeerUnavailable("nothing is left to measure")
    return made, skipped


def kafka_libs() -> Path:
    """Folder of Apache Kafka's jars, fetched by Maven on first use."""
    libs = BUILD / f"kafka-{KAFKA_VERSION}" / "libs"
    if not (libs / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
        need("java", "mvn")
        libs.parent.mkdir(parents=True, exist_ok=True)
        (libs.parent / "pom.xml").write_text(POM)
        goal = ["dependency:copy-dependencies", "-DoutputDirectory=libs"]
        _run(["mvn", "-q", "-B", *goal], libs.parent, f"Apache Kafka {KAFKA_VERSION} by Maven")
    return libs


def kafka_script() -> Path:
    """``kafka.sh PORT DATADIR [NAME=VALUE ...]``: a foreground Apache Kafka."""
    return _kafka_program("kafka.sh", KAFKA_SCRIPT)


def kafka_node_script() -> Path:
    """``kafka-node.sh ID DATADIR PORTS CONTROLLERPORTS [NAME=VALUE ...]``: one node of a cluster in the foreground."""
    return _kafka_program("kafka-node.sh", KAFKA_NODE_SCRIPT)


def zookeeper_jars() -> list[Path]:
    """What ZooKeeper needs, from the jars that come with pyspark; nothing if that is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    jars = Path(spec.origin).parent / "jars"
    return sorted(jar for pattern in ZOOKEEPER_JARS for jar in jars.glob(pattern))


def _kafka_program(name: str, text: str) -> Path:
    need("java")
    libs = kafka_libs()
    script = libs.parent / name
    _write_executable(script, text.format(name=name, libs=libs))
    return script


def kafka_tools_home() -> Path:
    """A ``KAFKA_PATH``: the scripts in ``bin/`` that librdkafka's tests call run Kafka's own Java tools, or classes of
    the tests that are compiled against ``libs/``."""
    need("java", "javac")
    libs = kafka_libs()
    home = libs.parent / "home"
    run = "#!/bin/sh\nexec java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    for script, main_class in KAFKA_TOOLS.items():
        _write_executable(home / "bin" / script, f"{run} -cp '{libs}/*' {main_class} \"$@\"\n")
    _write_executable(home / "bin" / "kafka-run-class.sh", f'{run} -cp "$CLASSPATH:"\'{libs}/*\' "$@"\n')
    if not (home / "libs").exists():
        (home / "libs").symlink_to(Path("..", libs.name))
    return home


def rdkafka_performance() -> Path:
    """librdkafka's benchmark client; ``RDPERF`` names another build of it."""
    if "RDPERF" in os.environ:
        return Path(os.environ["RDPERF"])
    source = _librdkafka_source()
    binary = source / "examples" / "rdkafka_performance"
    if not binary.exists():
        _run(["make", "-C", "examples", "rdkafka_performance"], source, "rdkafka_performance")
    return binary


def rdkafka_test_runner() -> Path:
    """librdkafka's own test suite, one program; it has to run in its folder."""
    source = _librdkafka_source()
    binary = source / "tests" / "test-runner"
    if not binary.exists():
        _need_headers(source.parent, "rapidjson/document.h")  # without it four tests are skipped
        if not _configured(source, "WITH_RAPIDJSON"):  # built for the benchmark before the headers were there
            _build_librdkafka(source)
        _run(["make", f"-j{os.cpu_count() or 1}", "-C", "tests", "build"], source, "librdkafka's test-runner")
    return binary


def kfake() -> Path:
    """franz-go's in-memory broker as a program: ``kfake PORT``."""
    binary = BUILD / "kfake" / "kfake"
    if not binary.exists():
        need("go")
        binary.parent.mkdir(parents=True, exist_ok=True)
        (binary.parent / "main.go").write_text(KFAKE_MAIN)
        modules = {"github.com/twmb/franz-go": FRANZ_GO_VERSION, "github.com/twmb/franz-go/pkg/kfake": KFAKE_VERSION}
        require = "\n".join(f"require {module} {version}" for module, version in modules.items())
        (binary.parent / "go.mod").write_text(f"module kfake-peer\n\ngo 1.25\n\n{require}\n")
        _run(["go", "mod", "tidy"], binary.parent, "kfake by the Go module proxy")
        _run(["go", "build", "-o", "kfake", "."], binary.parent, "kfake")
    return binary


def franz_go_source() -> Path:
    """A writable copy of the franz-go module, from which its kgo suite can be run."""
    target = BUILD / f"franz-go-{FRANZ_GO_VERSION}"
    if not target.exists():
        need("go")
        BUILD.mkdir(parents=True, exist_ok=True)
        module = f"github.com/twmb/franz-go@{FRANZ_GO_VERSION}"
        answer = _run(["go", "mod", "download", "-json", module], BUILD, "franz-go by the Go module proxy")
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(json.loads(answer)["Dir"], partial)
        for folder, _, files in os.walk(partial):  # the module cache is read-only
            for name in (".", *files):
                path = Path(folder, name)
                path.chmod(path.stat().st_mode | stat.S_IWUSR)
        partial.rename(target)
    return target


def _librdkafka_source() -> Path:
    source = BUILD / "librdkafka" / f"librdkafka-{LIBRDKAFKA_VERSION}"
    if (source / "src-cpp" / "librdkafka++.so.1").exists():
        return source
    need("gcc", "g++", "make", "dpkg-source", "apt-get")
    folder = source.parent
    folder.mkdir(parents=True, exist_ok=True)
    if not (source / "configure").exists():
        options = [*_source_lists(folder), "-o", "APT::Sandbox::User=root"]
        _run(["apt-get", *options, "-q", "source", LIBRDKAFKA_PACKAGE], folder, "librdkafka's source")
    _build_librdkafka(source)
    return source


def _build_librdkafka(source: Path) -> None:
    _need_headers(source.parent, "zstd.h", "openssl/ssl.h", "zlib.h")
    # No Kerberos and no static linking: the default of a developer's package set leaves gss_* symbols open.
    _run(["./configure", "--disable-gssapi"], source, "librdkafka's configure")
    for library, package in {"WITH_ZSTD": "libzstd-dev", "WITH_SSL": "libssl-dev", "WITH_ZLIB": "zlib1g-dev"}.items():
        if not _configured(source, library):
            raise PeerUnavailable(f"librdkafka was configured without {library}: apt-get install {package}")
    _run(["make", f"-j{os.cpu_count() or 1}", "libs"], source, "librdkafka")


def _need_headers(folder: Path, *headers: str) -> None:
    """Installs the packages of the missing headers. Raises PeerUnavailable with their names if this user may not
    install them."""
    missing = [PACKAGE_OF_HEADER[header] for header in headers if not Path("/usr/include", header).exists()]
    missing = [package for package in missing if not _installed(package)]
    if not missing:
        return
    if os.geteuid() != 0:
        raise PeerUnavailable(f"headers are missing: apt-get install {' '.join(missing)}")
    _run(["apt-get", "-q", "update"], folder, "Debian's list of packages")
    _run(["apt-get", "-q", "-y", "install", *missing], folder, " ".join(missing))


def _installed(package: str) -> bool:
    """Debian keeps some headers in a folder of the machine's architecture."""
    asked = ["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}", package]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.startswith("ii")


def _configured(source: Path, define: str) -> bool:
    return re.search(rf"#define {define} 1", (source / "config.h").read_text()) is not None


def _source_lists(folder: Path) -> Sequence[str]:
    """Options that let apt-get see source packages even where the system lists binary packages only."""
    etc = Path("/etc/apt")
    stanzas = [path.read_text() for path in sorted(etc.glob("sources.list.d/*.sources"))]
    lists = [etc / "sources.list", *sorted(etc.glob("sources.list.d/*.list"))]
    lines = [path.read_text() for path in lists if path.exists()]
    if any(re.search(r"(?m)^Types:.*deb-src", text) for text in stanzas):
        return []
    if any(re.search(r"(?m)^deb-src ", text) for text in lines):
        return []
    parts = folder / "apt"
    (parts / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(stanzas):
        (parts / f"{number}.sources").write_text(re.sub(r"(?m)^Types:.*$", "Types: deb-src", text))
    for number, text in enumerate(lines):
        kept = "\n".join(re.sub(r"^deb ", "deb-src ", line) for line in text.splitlines() if line.startswith("deb "))
        (parts / f"{number}.list").write_text(kept + "\n")
    options = ["-o", "Dir::Etc::sourcelist=-", "-o", f"Dir::Etc::sourceparts={parts}"]
    options += ["-o", f"Dir::State::lists={parts / 'lists'}", "-o", "APT::Sandbox::User=root"]
    _run(["apt-get", *options, "-q", "update"], folder, "Debian's list of source packages")
    return options


def need(*tools: str) -> None:
    """Raises :class:`PeerUnavailable` for the first tool that is not on PATH."""
    for tool in tools:
        if shutil.which(tool) is None:
            package = DEBIAN_PACKAGE_OF_TOOL[tool]
            raise PeerUnavailable(f"{tool} is not on PATH: apt-get install {package}")


def _run(command: Sequence[str], folder: Path, what: str, env: Mapping[str, str] | None = None) -> str:
    """Runs one step of a build with its output in ``build.log`` beside it, and returns its standard output."""
    print(f"  preparing {what} ...", flush=True)
    log = folder / "build.log"
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, errors="replace", check=False)
    with log.open("a") as out:
        out.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}\n")
    if done.returncode:
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-1:]
        raise PeerUnavailable(f"{what}: {' '.join(command[:3])} failed ({' '.join(last).strip()[:200]}); see {log}")
    return done.stdout


def _write_executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
