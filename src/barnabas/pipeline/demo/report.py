"""The figures as pictures: a PNG, and a page that needs nothing from elsewhere."""

import base64
import html
import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import UsageError

if TYPE_CHECKING:
    import pandas

__all__ = ["draw", "require_matplotlib", "write_page"]

_ZONE: Final = "America/New_York"
_LEAST: Final = 20
"""Departures that a mean needs."""
_STYLE: Final = """\
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}
table{border-collapse:collapse;font-size:12px}th,td{padding:3px 6px;text-align:right}th:first-child{text-align:left}
img{max-width:100%}.bad{color:#b00020}.good{color:#1b6e3c}small{color:#666}"""


def require_matplotlib() -> None:
    """Raises UsageError."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UsageError("the plot needs matplotlib: pip install 'barnabas[demo]'")


def _by_hour_of_day(frame: "pandas.DataFrame") -> "pandas.DataFrame":
    """Mean delay in minutes; a row for each airline, a column for each hour in New York."""
    import pandas

    local = pandas.to_datetime(frame["hour"]).dt.tz_convert(_ZONE)
    sums = frame.assign(clock=local.dt.hour).groupby(["airline", "clock"])[["delay_minutes", "departed"]].sum()
    means = (sums["delay_minutes"] / sums["departed"]).where(sums["departed"] >= _LEAST)
    return means.unstack("clock").dropna(how="all").dropna(axis="columns", how="all")


def _by_day(frame: "pandas.DataFrame") -> "pandas.Series":
    import pandas

    day = pandas.to_datetime(frame["hour"]).dt.tz_convert(_ZONE).dt.date
    sums = frame.groupby(day)[["delay_minutes", "departed"]].sum()
    return sums["delay_minutes"] / sums["departed"]


def draw(frame: "pandas.DataFrame", path: Path) -> None:
    """Delays through the day and through the year."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (upper, lower) = pyplot.subplots(2, 1, figsize=(11, 9), height_ratios=(3, 2), layout="constrained")
    means = _by_hour_of_day(frame)
    if not means.empty:
        image = upper.imshow(means.to_numpy(), aspect="auto", cmap="YlOrRd", vmin=0, vmax=45)
        upper.set_xticks(range(len(means.columns)), [f"{hour}:00" for hour in means.columns], rotation=45)
        upper.set_yticks(range(len(means.index)), means.index)
        figure.colorbar(image, ax=upper, label="minutes")
    upper.set_title("Mean delay at departure from New York, 2013, by airline and scheduled hour")
    days = _by_day(frame)
    lower.plot(days.index, days.to_numpy(), color="#bd0026", linewidth=1)
    lower.set_title("By day")
    lower.set_ylabel("minutes")
    lower.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110)
    pyplot.close(figure)
    path.write_bytes(buffer.getvalue())


def write_page(
    frame: "pandas.DataFrame", picture: Path, path: Path, facts: Iterable[tuple[str, Any]], ok: bool
) -> None:
    """The picture, the means with their exact figures, and what the check has said."""
    image = base64.b64encode(picture.read_bytes()).decode()
    verdict = "every figure equals that of pandas" if ok else "the figures differ from those of pandas"
    rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>" for name, value in facts)
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Delays from New York, 2013</title>",
        f"<style>{_STYLE}</style><h1>Delays from New York, 2013</h1>",
        "<p>Events from a topic, joined with two tables and summed up by Spark, written to a compacted topic: ",
        f"<b class='{'good' if ok else 'bad'}'>{verdict}</b>.</p><table>{rows}</table>",
        f"<p><img alt='mean delay by airline, hour and day' src='data:image/png;base64,{image}'></p>",
        "<h2>Mean delay in minutes, by airline and scheduled hour</h2>",
        _table(_by_hour_of_day(frame)),
        f"<p><small>Hours of New York; means of {_LEAST} departures or more.</small></p></html>",
    ]
    path.write_text("".join(parts), encoding="utf-8")


def _table(means: "pandas.DataFrame") -> str:
    head = "".join(f"<th>{hour}</th>" for hour in means.columns)
    lines = [f"<tr><th></th>{head}</tr>"]
    for airline, row in means.iterrows():
        cells = "".join(_cell(f"{airline}, {hour}:00", value) for hour, value in row.items())
        lines.append(f"<tr><th>{html.escape(str(airline))}</th>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _cell(title: str, value: float) -> str:
    if value != value:  # nan: too few departures
        return "<td></td>"
    share = min(max(value / 45, 0), 1)
    colour = f"hsl({55 - 50 * share:.0f} 90% {92 - 40 * share:.0f}%)"
    return f"<td style='background:{colour}' title='{html.escape(title, quote=True)}'>{value:.1f}</td>"
