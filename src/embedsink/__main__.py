"""The entry point of the program `embedsink` and of `python -m embedsink`."""

import sys


def run() -> None:
    """Run the command line, `embedsink.cli.app`."""
    # Prevent DuckDB from importing pandas, which it does at the first query with a parameter, to compare the parameter
    # with NaT. The import takes half a second and 60 MiB, and no command uses pandas. With None, each import fails.
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
    try:
        from embedsink.cli.app import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)  # The shell's exit code for Ctrl-C, even during imports.


if __name__ == "__main__":
    run()
