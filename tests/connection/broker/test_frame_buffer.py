"""The frame that is partly received."""

import tracemalloc

from barnabas.connection.broker.frame_buffer import FrameBuffer


def test_a_frame_is_received_where_it_stays() -> None:
    """No copy is made of what was received into the room."""
    tracemalloc.start()
    try:
        room = FrameBuffer(8_000_000)
        filled = 0
        while room.left:
            borrowed = room.left  # as a driver does
            count = min(300_000, len(borrowed))
            borrowed[:count] = bytes([filled % 251]) * count
            room.filled(count)
            filled += count
        frame = room.take()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert frame == b"".join(bytes([at % 251]) * min(300_000, 8_000_000 - at) for at in range(0, 8_000_000, 300_000))
    assert peak < 9_000_000
