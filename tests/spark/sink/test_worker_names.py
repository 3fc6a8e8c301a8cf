"""Transactional ids of tasks: whichever tasks live at the same time, whatever Spark counts as what."""

import os

from barnabas.spark.sink.worker_names import WorkerNames, WriteName, next_task_name

FIRST = WriteName("q", "run", 0)


def test_tasks_of_one_batch_share_no_id_in_one_process_or_several() -> None:
    one, other = WorkerNames(), WorkerNames()
    ids = [names.next(FIRST) for names in (one, one, other, one, other)]
    assert len(set(ids)) == 5


def test_ids_come_again_with_the_next_batch() -> None:
    """Else brokers would keep one for each task of a week."""
    names = WorkerNames()
    before = [names.next(FIRST) for _ in range(3)]
    assert [names.next(FIRST._replace(batch=1)) for _ in range(3)] == before
    assert names.next(FIRST._replace(batch=7)) == before[0]


def test_a_task_of_an_older_batch_takes_no_id_of_the_newer_one() -> None:
    names = WorkerNames()
    names.next(FIRST)
    newer = [names.next(FIRST._replace(batch=1)) for _ in range(2)]
    late = names.next(FIRST)
    assert late not in newer
    assert names.next(FIRST._replace(batch=1)) not in {late, *newer}


def test_a_run_that_was_forgotten_has_other_ids_when_it_comes_again() -> None:
    names = WorkerNames()
    before = names.next(FIRST)
    for number in range(100):
        names.next(WriteName("q", f"run-{number}", 0))
    assert names.next(FIRST) != before


def test_a_fork_has_other_ids() -> None:
    mine = next_task_name(FIRST)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, next_task_name(FIRST).encode())
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        others = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    name, dot, number = others.partition(".")
    assert (len(name), dot, number) == (8, ".", "0")
    assert name != mine.partition(".")[0]
