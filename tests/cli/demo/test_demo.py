"""`barnabas demo`."""

import socket

from cli.conftest import one_line, run_barnabas


def test_a_busy_port_is_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_barnabas("demo", "flights", "--listen", address)
        assert done.returncode == 2
        assert f"cannot listen on {address}" in one_line(done.stderr)
