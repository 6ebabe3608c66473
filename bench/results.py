"""Results with their goals: as a table, and as a JSON document."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Goal:
    """An inclusive bound for a value."""

    at_least: float | None = None
    at_most: float | None = None

    def is_met(self, value: float) -> bool:
        """Return whether a value is within the bound."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        return f"≥ {_short(self.at_least)}" if self.at_least is not None else f"≤ {_short(self.at_most or 0.0)}"


@dataclass(frozen=True, slots=True)
class Result:
    """One measured number. `rounds` has the value of each round."""

    name: str
    value: float
    unit: str
    rounds: list[float] = field(default_factory=list)
    goal: Goal | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        return None if self.goal is None else self.goal.is_met(self.value)


def median_of(name: str, unit: str, rounds: list[float], goal: Goal | None = None) -> Result:
    """Return the median of the rounds."""
    return Result(name, median(rounds), unit, rounds, goal)


def ratio_of(name: str, ours: list[float], theirs: list[float], goal: Goal | None = None) -> Result:
    """Return the ratio of two medians; `rounds` has the ratio of each round."""
    rounds = [one / other for one, other in zip(ours, theirs, strict=True)]
    return Result(name, median(ours) / median(theirs), "×", rounds, goal)


def results_table(results: list[Result]) -> Table:
    """Return a table with a row for each result."""
    table = Table()
    for heading in ("result", "measured", "range", "goal", ""):
        table.add_column(heading, justify="left" if heading in ("result", "") else "right", no_wrap=True)
    for result in results:
        measured = f"{_short(result.value)} {result.unit}".strip()
        value_range = f"{_short(min(result.rounds))} to {_short(max(result.rounds))}" if len(result.rounds) > 1 else ""
        verdict = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[result.is_met]
        table.add_row(result.name, measured, value_range, str(result.goal or ""), verdict)
    return table


def write_json(results: list[Result], path: Path) -> None:
    """Write all results with the values of their rounds."""
    document = [asdict(result) | {"is_met": result.is_met} for result in results]
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
