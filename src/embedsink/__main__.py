"""The program `embedsink`, and `python -m embedsink`: a process that is nothing else."""

import sys

from embedsink.cli import main


def run() -> None:
    """Run the command line; see `embedsink.cli`."""
    # At the first query with a parameter DuckDB imports pandas, only to see whether the parameter is pandas' NaT. That
    # is half a second and 60 MiB, and no command makes frames, a server least of all.
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
    main()


if __name__ == "__main__":
    run()
