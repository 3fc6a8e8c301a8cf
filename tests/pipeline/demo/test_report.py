"""The figures of the demo as a picture and a page."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import UsageError
from barnabas.pipeline.demo.report import draw, require_matplotlib, write_page

pandas = pytest.importorskip("pandas")


def frame_of(*rows: tuple[str, str, float, int]) -> Any:
    return pandas.DataFrame(rows, columns=["hour", "airline", "delay_minutes", "departed"])


FRAME = frame_of(
    ("2013-01-01T10:00:00Z", "<UA>", 100.0, 10),
    ("2013-01-02T10:00:00Z", "<UA>", 500.0, 20),
    ("2013-07-01T10:00:00Z", "AA", 900.0, 20),
    ("2013-07-01T11:00:00Z", "AA", 900.0, 19),
)


def test_a_page_has_the_means_of_each_hour_in_new_york(tmp_path: Path) -> None:
    picture, page = tmp_path / "picture.png", tmp_path / "page.html"
    picture.write_bytes(b"\x89PNG")
    write_page(FRAME, picture, page, [("flights", "1 < 2")], ok=False)
    text = page.read_text(encoding="utf-8")
    assert "src='data:image/png;base64,iVBORw=='" in text
    assert "<tr><th></th><th>5</th><th>6</th></tr>" in text, "10:00 UTC in winter and in summer"
    assert "title='&lt;UA&gt;, 5:00'>20.0</td><td></td>" in text
    assert "title='AA, 6:00'>45.0</td>" in text
    assert text.count("title=") == 2, "a mean needs twenty departures"
    assert "<tr><th>flights</th><td>1 &lt; 2</td></tr>" in text
    assert "<b class='bad'>the figures differ from those of pandas</b>" in text
    write_page(FRAME, picture, page, [], ok=True)
    assert "<b class='good'>every figure equals that of pandas</b>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("frame", [FRAME, FRAME[:1]], ids=["some", "too few for a mean"])
def test_a_picture_is_drawn(frame: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(frame, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_without_matplotlib_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'barnabas\[demo\]'"):
        require_matplotlib()
