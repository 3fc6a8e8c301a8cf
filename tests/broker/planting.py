"""A plugin of pytest (``-p broker.planting``): plants a bug in each test that has to find it, and expects it to fail.

Programs that a test starts have the bug as well. All run on plain Python: a compiled module ignores what is planted in
it, or is none the wiser of what is planted beside it. A bug that cannot be planted any more, because the code has
changed, ends the session; one that fails by itself, where it is planted, counts as not found, and so does one with
which a test's fixtures fail, before the test has looked.
"""

import os
import re
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

from barnabas.errors import BarnabasError
from barnabas.records.compiled.record_walk import is_compiled
from broker import planted_bugs
from replication.planted_bugs import Plant, broker_epochs_are_ignored

__all__ = ["FOUND_AT_ONCE", "FOUND_LATER"]

PLANTED = Path(__file__).parent / "planted"
Found = tuple[Plant, str, str]
"""A bug with the file and the name of a test that finds it. `replication.planted_bugs` and `whole_cluster` have others,
with simulations that find them; `tests/faults/cluster/planted.py` says which ones rounds of faults find."""
BREAKS = re.compile(r"\b(Attribute|Import|Name|Type)Error\b")
FAILURES = (AssertionError, BarnabasError, TimeoutError, pytest.fail.Exception)

FOUND_AT_ONCE: list[Found] = [
    (
        planted_bugs.replicas_take_the_emptiest_directory,
        "testing/cluster/test_cluster.py",
        "test_no_disk_has_all_replicas_of_a_partition",
    ),
    (
        planted_bugs.a_copied_registry_counts_as_the_original,
        "registry/test_incarnation.py",
        "test_nobody_of_the_original_belongs_to_a_copy",
    ),
    (
        planted_bugs.replicas_that_share_a_disk_are_told_to_nobody,
        "cli/cluster/health/test_findings.py",
        "test_replicas_that_share_a_disk_though_there_are_others",
    ),
    (
        planted_bugs.a_live_registration_is_taken_over,
        "registry/test_incarnation.py",
        "test_a_broker_that_runs_keeps_its_node_id_from_copies_of_its_directories",
    ),
    (
        broker_epochs_are_ignored,
        "replication/test_leader_state.py",
        "test_fetches_of_a_registration_that_the_metadata_lacks_do_not_count[21]",
    ),
    (
        planted_bugs.a_moved_log_keeps_its_name,
        "replication/test_log_dir_move.py",
        "test_a_replaced_log_never_counts_again",
    ),
    (
        planted_bugs.old_directories_count_as_current,
        "broker/startup/test_directory_age.py",
        "test_an_old_copy_of_a_stopped_broker_never_leads",
    ),
    (
        planted_bugs.an_old_registry_is_believed,
        "broker/startup/test_registry_age.py",
        "test_each_of_several_brokers_refuses_it",
    ),
    (
        planted_bugs.who_cannot_be_seen_is_judged_by_its_boot,
        "registry/test_broker_locks.py",
        "test_the_lock_of_a_killed_process_is_free_whatever_it_has_started",
    ),
    (
        planted_bugs.topics_get_as_many_replicas_as_there_are_brokers,
        "controller/test_auto_topics.py",
        "test_what_is_set_is_demanded_and_a_default_is_a_wish[settings1-t-of_registered1]",
    ),
    (
        planted_bugs.followers_refuse_batches_above_segment_bytes,
        "log/test_unified_log.py::TestAppend",
        "test_a_follower_takes_batches_that_are_larger_than_a_segment_may_be_now",
    ),
    *(
        (planted_bugs.all_logs_of_an_image_are_made_and_deleted_at_once, "replication/test_replica_manager.py", test)
        for test in (
            "test_of_many_logs_each_turn_of_the_loop_makes_one_leaders_first",
            "test_of_many_replicas_that_are_gone_each_turn_deletes_one_log",
        )
    ),
    (
        planted_bugs.directories_that_are_not_named_are_not_missed,
        "broker/startup/test_recovery.py",
        "test_without_the_directories_of_all_brokers_nothing_is_made[named0]",
    ),
    (
        planted_bugs.holes_are_passed_over,
        "log/test_holes.py",
        "test_a_segment_that_was_removed_is_missed[1-Verification.NONE]",
    ),
    (
        planted_bugs.a_move_agrees_with_its_log_only_after_truncations,
        "replication/test_log_dir_move.py",
        "test_a_log_that_is_emptied_meanwhile_moves[True-2]",
    ),
]
FOUND_LATER: list[Found] = [
    (
        planted_bugs.a_broker_without_its_disk_ends_all,
        "broker/supervisor/test_supervisor.py",
        "test_a_broker_without_its_disk_keeps_no_other_from_starting",
    ),
    (
        planted_bugs.silent_connections_stay,
        "broker/peers/test_inter_broker_listener.py",
        "test_silent_connections_keep_no_broker_out",
    ),
    (
        planted_bugs.nobody_checks_what_readers_cannot_use,
        "broker/cluster/test_damaged_logs.py",
        "test_another_leads_and_the_damaged_log_is_copied_anew_and_kept[wrong_checksum]",
    ),
    (
        planted_bugs.a_disk_that_fails_is_told_to_nobody,
        "broker/cluster/test_damaged_logs.py",
        "test_a_coordinator_whose_log_has_a_bad_batch_is_replaced",
    ),
    (
        planted_bugs.what_is_deleted_in_zookeeper_stays_away,
        "registry/zookeeper/test_deleted_nodes.py",
        "test_all_see_the_same_cluster_afterwards[/brokers/ids]",
    ),
    (
        planted_bugs.a_copied_registry_counts_as_the_original,
        "testing/cluster/test_copies.py",
        "test_a_copy_that_is_started_beside_a_cluster_leaves_it_alone[controller]",
    ),
    *(
        (
            planted_bugs.who_cannot_be_seen_is_judged_by_its_boot,
            "testing/cluster/test_containers.py",
            f"test_brokers_that_do_not_see_each_other_know_who_is_dead[{kind}]",
        )
        for kind in ("process ids", "boot ids")
    ),
    (
        planted_bugs.nothing_is_set_aside_for_the_registry,
        "testing/cluster/test_registry_disk.py",
        "test_on_a_full_disk_leaders_are_elected_and_topics_deleted",
    ),
    (
        planted_bugs.what_the_registry_does_not_take_counts_as_made,
        "testing/cluster/test_registry_disk.py",
        "test_while_it_fails_records_are_served_and_the_rest_waits",
    ),
    (
        planted_bugs.logs_keep_all_descriptors,
        "broker/process/test_resource_limits.py",
        "test_transactions_go_on_where_logs_alone_would_need_all_descriptors",
    ),
    (
        planted_bugs.a_loop_that_stands_still_keeps_its_roles,
        "broker/cluster/test_hanging_disk.py",
        "test_the_controllers_work_does_not_wait_for_a_disk_of_records",
    ),
]


def pytest_configure() -> None:
    if is_compiled():
        raise pytest.UsageError("bugs are planted on plain Python only")


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.xfail(strict=True, raises=FAILURES))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    said = (report.longreprtext, *(text for _, text in report.sections))
    is_found = report.when == "call" and not any(map(BREAKS.search, said))
    if hasattr(report, "wasxfail") and not is_found:
        report.outcome = "failed"
        del report.wasxfail
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    finders = {f"tests/{file}::{test}": plant for plant, file, test in (*FOUND_AT_ONCE, *FOUND_LATER)}
    plant = finders[item.nodeid]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLANTED_BUG", f"{plant.__module__}:{plant.__name__}")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(PLANTED), *sys.path]))
        plant(patch)
        return (yield)
