"""Clients beside their peers."""

from pathlib import Path

from bench import report
from bench.clients import comparison as clients
from bench.clients import loads as client_loads


def test_every_goal_of_a_client_belongs_to_a_row_that_is_run() -> None:
    rows = {row.name: row.loads for row in clients.ROWS}
    for goal in clients.GOALS:
        assert {goal.client, *goal.peers} <= rows[goal.row].keys()
    for row in clients.ROWS:
        for client, load in row.loads.items():
            name = client.removesuffix("-pure").replace("-", "_")
            assert callable(getattr(client_loads, f"{name}_{load}"))


def test_a_client_is_judged_beside_the_best_of_its_peers() -> None:
    goal = clients.Goal("iterate", "barnabas", "records_per_s", 1.5, ("confluent", "aiokafka"))
    peers = {"confluent": {"records_per_s": 300.0}, "aiokafka": {"records_per_s": 700.0}}
    assert goal.verdict({**peers, "barnabas": {"records_per_s": 1050.0}}).endswith("1.50x pass")
    assert goal.verdict({**peers, "barnabas": {"records_per_s": 1040.0}}).endswith("1.49x **FAIL**")
    assert goal.verdict(peers) == ""
    limit = clients.Goal("send", "barnabas", "memory_MB", 60.0, at_least=False)
    assert limit.verdict({"barnabas": {"memory_MB": 60.0}}) == "memory_MB <= 60: 60 pass"


def test_the_part_of_the_page_about_clients_leaves_the_rest_alone(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Benchmarks\n\n{report.BEGIN}\n\nbrokers\n{report.END}\n\nafter\n")
    for text in ("first", "second"):
        report.update_block(text, page, clients.BEGIN, clients.END)
    assert page.read_text() == (
        f"# Benchmarks\n\n{report.BEGIN}\n\nbrokers\n{report.END}\n\nafter\n\n"
        f"{clients.BEGIN}\n\nsecond\n{clients.END}\n"
    )
