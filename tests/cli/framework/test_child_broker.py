"""A broker in a child process of a command: its errors and its end."""

from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.cli.framework.child_broker import ChildBroker
from barnabas.cli.framework.output import CommandFailed


def test_a_child_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(CommandFailed, match=r"log\.segment\.bytes"),
        ChildBroker(tmp_path, "127.0.0.1:0", {"log.segment.bytes": "x"}),
    ):
        pass


def test_a_child_ends_with_its_block(tmp_path: Path) -> None:
    with ChildBroker(tmp_path, "127.0.0.1:0") as child:
        address = child.address
        with Admin(bootstrap_servers=address) as admin:
            assert len(admin.describe_cluster().brokers) == 1
    with ChildBroker(tmp_path, address):
        pass
