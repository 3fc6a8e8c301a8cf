"""docs/operations.md once more, upgrading from the release before this one."""

from pathlib import Path

import pytest

from test_operations_page import run_the_page
from upgrade.release_before import source_of_release_before
from upgrade.test_rolling_upgrade import ROUNDS
from zookeeper_server import ZooKeeperServer

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not ROUNDS, reason="make test-upgrade runs it"),
]


def test_the_page_upgrades_with_one_registry_file(tmp_path: Path) -> None:
    run_the_page(tmp_path, before=source_of_release_before())


def test_the_page_upgrades_with_zookeeper(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    run_the_page(tmp_path, zookeeper=zookeeper.new_path(), before=source_of_release_before())
