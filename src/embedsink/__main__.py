"""`python -m embedsink` is the command `embedsink`."""

from embedsink.cli import main

if __name__ == "__main__":
    main()
