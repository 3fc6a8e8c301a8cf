"""The move of docs/zookeeper.md from a file to ZooKeeper and back: its commands, as they stand there, while clients
work."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

import barnabas
from code_blocks import blocks_of
from steady_clients import steady_clients
from test_operations_page import FIRST_PORT, PORTS, free_ports, shell_in
from zookeeper_server import ZooKeeperServer

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

SECTION = "From a file to ZooKeeper, and back"


@pytest.mark.timeout(900)
def test_a_registry_moves_and_clients_go_on(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    port = free_ports()
    addresses = {FIRST_PORT + number: f"127.0.0.1:{port + number}" for number in range(PORTS)}
    servers = list(addresses.values())[:3]
    blocks = [block for block in blocks_of("docs/zookeeper.md") if block.language == "console"]
    assert {block.section for block in blocks} == {SECTION}
    place = zookeeper.new_path()
    shown: dict[str, str] = {}
    with shell_in(tmp_path, ",".join(servers)) as shell, ExitStack() as work:
        for number, block in enumerate(blocks):
            if number == 1:
                with barnabas.Admin(bootstrap_servers=servers[0]) as admin:
                    admin.create_topics([barnabas.NewTopic("steady", 3), barnabas.NewTopic("copies", 3)])
                work.enter_context(steady_clients(",".join(servers), "steady", "copies"))
            if number == len(blocks) - 1:
                work.close()
                shown["count"] = shell.run("barnabas consume orders --exit | wc -l")
            for command in block.commands:
                own = command.replace("127.0.0.1:2181/kafka", place)
                own = re.sub(r"127\.0\.0\.1:(909\d)", lambda found: addresses[int(found[1])], own)
                shown[command] = shell.run(own)
    moves = [output for command, output in shown.items() if "migrate-registry" in command]
    assert len(moves) == 2
    assert all("read back without a difference" in output for output in moves)
    assert shown["count"].strip() == "1000"
