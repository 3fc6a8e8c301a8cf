"""The copier of Kafka's own system tests copies each record once, whichever broker is killed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import barnabas
from broker.cluster.cluster_processes import QUICK, ClusterProcesses
from broker.cluster.cluster_processes import processes as processes
from jvm import JVM

from .harness.broker import KAFKA_LIBS

pytestmark = pytest.mark.skipif(
    not any(KAFKA_LIBS.glob("kafka-tools-*.jar")) or shutil.which("java") is None,
    reason="needs java and the jars of Apache Kafka (make interop-clients)",
)
RECORDS = 10_000
"""The records of each of the two partitions."""
TRANSACTION_SIZE = 100


@contextmanager
def copying(command: list[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("options", [(), ("--group-mode", "--use-group-metadata")], ids=["assigned", "group"])
def test_each_record_is_copied_once(processes: ClusterProcesses, tmp_path: Path, options: tuple[str, ...]) -> None:
    cluster = processes
    run = f"{'-'.join(options).strip('-') or 'assigned'}"
    source, target, group = f"input-{run}", f"output-{run}", f"copiers-{run}"
    for topic in (source, target):
        cluster.create(topic, ((1, 2, 3), (2, 3, 1)))
    values = [[f"{partition}-{n}" for n in range(RECORDS)] for partition in range(2)]
    with barnabas.Producer(bootstrap_servers=cluster.bootstrap, **QUICK) as producer:  # type: ignore[arg-type]
        for partition, texts in enumerate(values):
            producer.send_many(source, [text.encode() for text in texts], partition=partition)
    command = [*JVM, "-Xmx128m", "-cp", f"{KAFKA_LIBS}/*", "org.apache.kafka.tools.TransactionalMessageCopier"]
    command += ["--broker-list", cluster.bootstrap, "--input-topic", source, "--output-topic", target]
    command += ["--transaction-size", str(TRANSACTION_SIZE), "--enable-random-aborts", "--consumer-group", group]
    outputs = [tmp_path / f"copier-{n}" for n in range(2)]

    def reports() -> int:
        return sum(path.read_bytes().count(b"\n") for path in outputs)

    with ExitStack() as stack:
        copiers = []
        for number, output in enumerate(outputs):
            own = ["--transactional-id", f"{run}-{number}", "--input-partition", str(number), *options]
            copiers.append(stack.enter_context(copying(command + own, output)))
        for victim in (
            lambda: int(cluster.partitions(target)[0].leader),
            lambda: cluster.coordinator(group=group),
            lambda: cluster.coordinator(transactional_id=f"{run}-0"),
            cluster.controller,
        ):
            before = reports()
            cluster.wait_for(lambda: reports() >= before + 10, "transactions")  # noqa: B023 it returns at once
            cluster.kill(victim())
            cluster.heal()
        codes = [process.wait(180) for process in copiers]
    assert codes == [0, 0], [output.read_text()[-2000:] for output in outputs]
    assert cluster.committed(target) == sorted(text for texts in values for text in texts)
