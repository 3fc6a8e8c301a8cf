"""Loading of a partition's log into its shard: in steps, the last record of each key."""

from coordinator.runtime_rig import World
from coordinator.runtime_rig import world as world


def test_loading_reads_the_log(world: World) -> None:
    world.add(1, 2)
    world.add(3)
    world.runtime = world.make()
    world.runtime.load(0, 2)
    world.scheduler.advance(0.01)
    assert world.machines[-1].is_loaded
    assert world.add(4).value == 10
    assert world.machines[-1].offsets == [0, 1, 2, 3]


def test_only_the_last_record_of_a_key_is_replayed(world: World) -> None:
    world.add(1, 7, 2)
    for _ in range(50):
        world.add(7)
    world.add(3)
    world.runtime = world.make()
    world.runtime.load(0, 2)
    world.scheduler.advance(0.01)
    assert world.machines[-1].total == 1 + 2 + 3 + 7
    assert world.machines[-1].offsets == [0, 2, 52, 53]


def test_a_long_log_is_read_in_many_steps(world: World) -> None:
    numbers = tuple(range(100, 5100))
    world.add(*numbers)
    world.add(*numbers)
    world.runtime = world.make()
    world.log.reads = 0
    world.runtime.load(0, 2)
    world.scheduler.advance(0)
    assert world.log.reads > 1
    assert world.machines[-1].total == 2 * sum(numbers)
    assert world.machines[-1].offsets == list(range(10_000))


def test_a_damaged_record_is_left_out(world: World) -> None:
    world.add(1, 13, 5)
    world.runtime = world.make()
    world.runtime.load(0, 2)
    world.scheduler.advance(0.01)
    assert world.machines[-1].total == 6
