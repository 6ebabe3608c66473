"""embedsink: durable events from embedded analytics, and the reports on them.

`embedsink.open("data")` and `embedsink.connect(url, key=…)` give the reports as pandas frames.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embedsink.client import connect as connect
    from embedsink.client import open as open

__version__ = "0.1.0"
__all__ = ["__version__", "connect", "open"]


def __getattr__(name: str) -> Any:
    # Only who asks for a frame pays for pandas: the server and the command line import this package too.
    if name in ("connect", "open"):
        from embedsink import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
