"""A process that holds up the packets of a bad link, and loses some: what `tc netem` does, where the kernel has none.

Packets come out of a TUN device, whose descriptor is standard input, and go back into it when they are due.
"""

import heapq
import os
import random
import select
import sys
import time

PACKET_BYTES = 1 << 16
QUEUE_PACKETS = 10_000
"""What comes while so many packets wait is lost, as on a router."""


def main() -> None:
    shortest_s, longest_s, loss = map(float, sys.argv[1:4])
    rng = random.Random(sys.argv[4])
    largest_bytes = int(sys.argv[5])
    waiting: list[tuple[float, int, bytes]] = []
    number = 0
    while True:
        timeout_s = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
        if select.select([0], [], [], timeout_s)[0]:
            packet = os.read(0, PACKET_BYTES)
            if len(packet) <= largest_bytes and rng.random() >= loss and len(waiting) < QUEUE_PACKETS:
                number += 1
                heapq.heappush(waiting, (time.monotonic() + rng.uniform(shortest_s, longest_s), number, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            os.write(0, heapq.heappop(waiting)[2])


if __name__ == "__main__":
    main()
