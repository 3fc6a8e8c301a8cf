"""The links between machines of a test are as good or bad as asked for."""

import subprocess
import sys
from collections.abc import Callable

from bench.attached import attached
from network_namespaces import Network, on_router

PORT = 7000
ECHO = """
import socket
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind(("", 7000))
print("ready", flush=True)
while True:
    echo.sendto(*echo.recvfrom(100))
"""
ASK = """
import socket, sys, time
ask = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ask.settimeout(float(sys.argv[2]))
began = time.monotonic()
ask.sendto(b"?", (sys.argv[1], 7000))
try:
    ask.recvfrom(100)
except TimeoutError:
    print(-1)
else:
    print(time.monotonic() - began)
"""
LONG_S, SHORT_S = 60.0, 1.0


def seconds(network: Network, timeout_s: float) -> float:
    """Returns how long a packet takes from machine 1 to machine 2 and back, -1 if none comes."""
    command = [*network.command(1), sys.executable, "-c", ASK, network.host(2), f"{timeout_s}"]
    return float(subprocess.run(command, check=True, capture_output=True, timeout=LONG_S + 30).stdout)


def with_two_machines(test: Callable[[Network], None]) -> None:
    def run(network: Network) -> None:
        for number in (1, 2):
            network.add(number)
        command = attached([*network.command(2), sys.executable, "-c", ECHO])
        with subprocess.Popen(command, stdout=subprocess.PIPE) as echo:
            assert echo.stdout is not None
            try:
                echo.stdout.readline()
                test(network)
            finally:
                echo.kill()

    on_router(run)


def test_a_bad_link_delays_and_loses_packets_until_it_is_good_again() -> None:
    def test(network: Network) -> None:
        assert seconds(network, LONG_S) >= 0
        end = network.worsen(1, 2, delay_s=(0.2, 0.3), loss=0.0, seed="1")
        assert seconds(network, LONG_S) >= 0.4, "both ways"
        end()
        network.worsen(1, 2, delay_s=(0.2, 0.3), loss=0.0, seed="1", one_way=True)
        assert seconds(network, LONG_S) >= 0.2
        network.cut(2, 1, one_way=True)
        assert seconds(network, SHORT_S) == -1
        network.heal()
        network.worsen(2, 1, delay_s=(0.0, 0.0), loss=1.0, seed="1", one_way=True)
        assert seconds(network, SHORT_S) == -1, "all are lost"
        network.heal()
        end()
        assert seconds(network, LONG_S) >= 0

    with_two_machines(test)


def test_a_link_swallows_packets_that_are_too_large() -> None:
    def test(network: Network) -> None:
        for largest_bytes, passes in ((1000, True), (20, False)):
            end = network.worsen(1, 2, delay_s=(0.0, 0.0), loss=0.0, seed="1", largest_bytes=largest_bytes)
            assert (seconds(network, LONG_S if passes else SHORT_S) >= 0) is passes
            end()

    with_two_machines(test)


def test_one_cut_ends_without_another() -> None:
    def test(network: Network) -> None:
        first, second = network.cut(1, 2), network.cut(2, 1, one_way=True)
        first()
        assert seconds(network, SHORT_S) == -1
        second()
        assert seconds(network, LONG_S) >= 0

    with_two_machines(test)
