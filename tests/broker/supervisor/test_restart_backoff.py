"""The pause before the next start of a process."""

from barnabas.broker.supervisor.restart_backoff import RestartBackoff


def test_each_death_doubles_the_pause_up_to_ten_seconds() -> None:
    backoff = RestartBackoff()
    assert [backoff.after_run(1.0) for _ in range(9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_process_that_ran_for_a_minute_is_started_again_soon() -> None:
    backoff = RestartBackoff()
    assert [backoff.after_run(ran_s) for ran_s in (0.0, 0.0, 59.9, 60.0, 0.0)] == [0.1, 0.2, 0.4, 0.1, 0.2]
