"""What is done once in each of Spark's Python workers."""

import gc

__all__ = ["settle_memory"]

_calls = 0


def settle_memory() -> None:
    """Spark's workers run a full garbage collection after each task. What is there by the second call stays for good:
    frozen, it is not looked at again, which saves most of a small task's time."""
    global _calls
    _calls += 1
    if _calls <= 2:
        gc.collect()
        gc.freeze()
