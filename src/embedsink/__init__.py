"""embedsink: a durable store for events of embedded analytics, with reports.

`embedsink.open("data")` and `embedsink.connect(url, key=…)` return clients that read reports as pandas frames.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embedsink.client.notebook import connect, open

__version__ = "0.1.0"
__all__ = ["__version__", "connect", "open"]


def __getattr__(name: str) -> Any:
    """Import `connect` and `open` at their first use. The server and the commands need neither of them, nor pandas."""
    if name in ("connect", "open"):
        from embedsink.client import notebook

        return getattr(notebook, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
