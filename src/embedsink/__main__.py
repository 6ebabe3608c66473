"""The program `embedsink`, and `python -m embedsink`: a process that is nothing else."""

import sys


def run() -> None:
    """Run the command line; see `embedsink.cli.app`."""
    # At the first query with a parameter DuckDB imports pandas, only to see whether the parameter is pandas' NaT. That
    # is half a second and 60 MiB, and no command makes frames, a server least of all.
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
    try:
        from embedsink.cli.app import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)  # as a shell says that Ctrl-C ended it, also while modules are still being read


if __name__ == "__main__":
    run()
