"""The options of `barnabas serve`, parsed by hand, and brokers that do not start."""

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.serve.start_broker import ServeOptions, parse_serve, run_broker
from barnabas.errors import UsageError
from cli.conftest import run_barnabas


def test_a_busy_port_is_a_line_for_serve_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_barnabas("serve", "--listen", address, "--data-dir", str(tmp_path))
        assert done.returncode == 2
        assert address in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


def test_variables_of_the_other_commands_are_no_settings(tmp_path: Path) -> None:
    done = run_barnabas(
        "serve", "--listen", "nonsense", environment={"BARNABAS_PROFILE": "x", "BARNABAS_CLIENT_CONFIG": "y"}
    )
    assert done.returncode == 2
    assert "HOST:PORT" in done.stderr


def test_options_are_taken_in_both_forms() -> None:
    parsed = parse_serve(["--data-dir", "a", "--data-dir=b", "--set=x=1", "--listen", ":0", "--json", "--node-id=5"])
    assert parsed == ServeOptions(data_dir=("a", "b"), settings=("x=1",), listen=":0", json=True, node_id="5")
    assert parse_serve([]) == ServeOptions()


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--listen"], ["--listen", "--json"], ["data"], ["--jso"], ["-h"], ["--data-dir", "s\udcff"]],
)
def test_all_else_is_left_to_the_declared_options(arguments: list[str]) -> None:
    assert parse_serve(arguments) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["--data-dir", "--config", "--set", "--lost-dir"]),
            st.text("ab=,.:/0", min_size=1, max_size=5),
            st.booleans(),
        )
    )
)
def test_repeated_options_keep_their_order(given_options: list[tuple[str, str, bool]]) -> None:
    words = [[f"{name}={value}"] if joined else [name, value] for name, value, joined in given_options]
    parsed = parse_serve([word for option in words for word in option])
    assert parsed is not None
    found = {
        "--data-dir": parsed.data_dir,
        "--config": parsed.config,
        "--set": parsed.settings,
        "--lost-dir": parsed.lost_dir,
    }
    for name, values in found.items():
        assert list(values) == [value for given_name, value, _ in given_options if given_name == name]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ServeOptions(listen="127.0.0.1"), "--listen 127.0.0.1: must be HOST:PORT"),
        (ServeOptions(listen="127.0.0.1:99999"), "--listen 127.0.0.1:99999: must be HOST:PORT"),
        (ServeOptions(listen=":0,host:\u00b2"), "--listen host:\u00b2: must be HOST:PORT"),
        (ServeOptions(log_level="loud"), "--log-level loud: must be one of debug, info, warning, error"),
        (ServeOptions(listen=":0", ready_file="/no/such/file"), "--ready-file /no/such/file: its directory does not"),
        (ServeOptions(listen=":0", lost_dir=("x",)), "--lost-dir x: must be a directory.id"),
    ],
)
def test_what_is_wrong_is_told_before_a_broker_starts(
    options: ServeOptions, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    with pytest.raises(UsageError) as caught:
        run_broker(options._replace(data_dir=(str(tmp_path / "data"),)))
    assert str(caught.value).startswith(told)
    assert not (tmp_path / "data").exists()
