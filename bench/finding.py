"""What was measured, held against its goal: one table for people, one JSON document for programs."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound that a value should keep; both ends count as kept."""

    at_least: float | None = None
    at_most: float | None = None

    def is_met(self, value: float) -> bool:
        """Whether a value keeps the bound."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        return f"≥ {_short(self.at_least)}" if self.at_least is not None else f"≤ {_short(self.at_most or 0.0)}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One number. `rounds` holds what each round gave, so that the reader sees how steady it was."""

    what: str
    value: float
    unit: str
    rounds: list[float] = field(default_factory=list)
    goal: Goal | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal was reached; None when there is none."""
        return None if self.goal is None else self.goal.is_met(self.value)


def show(findings: list[Finding], console: Console) -> None:
    """Print all findings as one table."""
    table = Table()
    for heading in ("what", "measured", "range", "goal", ""):
        table.add_column(heading, justify="left" if heading in ("what", "") else "right", no_wrap=True)
    for finding in findings:
        seen = f"{_short(finding.value)} {finding.unit}".strip()
        spread = f"{_short(min(finding.rounds))} to {_short(max(finding.rounds))}" if len(finding.rounds) > 1 else ""
        verdict = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[finding.is_met]
        table.add_row(finding.what, seen, spread, str(finding.goal or ""), verdict)
    console.print(table)


def write_json(findings: list[Finding], path: Path) -> None:
    """Write all findings, with every round of theirs."""
    found = [asdict(finding) | {"is_met": finding.is_met} for finding in findings]
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
