"""embedsink: durable events from embedded analytics, and the reports on them.

`embedsink.open("data")` and `embedsink.connect(url, key=…)` give the reports as pandas frames.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embedsink.client.notebook import connect, open

__version__ = "0.1.0"
__all__ = ["__version__", "connect", "open"]


def __getattr__(name: str) -> Any:
    # Only who asks for a frame pays for pandas: the server and the command line import this package too.
    if name in ("connect", "open"):
        from embedsink.client import notebook

        return getattr(notebook, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
