"""The entry point of the program `embedsink` and of `python -m embedsink`."""

import logging
import sys


def run() -> None:
    """Run the command line, `embedsink.cli.app`."""
    # At the first query with a parameter, DuckDB tries to import pandas, to compare the parameter with NaT. That takes
    # half a second and 60 MiB, and no command uses pandas. None makes the import fail.
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
    try:
        # Import here, so that Ctrl-C during these imports writes no traceback.
        from embedsink.cli.app import main
        from embedsink.json_logging import log_as_json

        log_as_json(logging.WARNING)
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the shell's exit code for Ctrl-C


if __name__ == "__main__":
    run()
