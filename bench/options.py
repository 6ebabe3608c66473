"""The options that several benchmarks have."""

from pathlib import Path
from typing import Annotated

import typer

REPOSITORY = Path(__file__).parent.parent

Seconds = Annotated[float, typer.Option(min=1, help="The length of each burst of load.")]
Rounds = Annotated[int, typer.Option(min=1, help="The number of rounds. The result is their median.")]
Events = Annotated[int, typer.Option(min=1_000, help="The number of events in the store.")]
DataRoot = Annotated[Path, typer.Option(help="The folder for temporary data folders. Its disk is measured.")]
