"""Servers that kill themselves at a step of their work."""

import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.support.servers import RunningServer, running_server, wait_until

_KILL_AT = """
import os, signal
{imports}
steps = [{step}]

def count():
    steps[0] -= 1
    if steps[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def with_kills(owner, name):
    function = getattr(owner, name)

    def counted(*arguments, **options):
        {before}
        result = function(*arguments, **options)
        {after}
        return result

    setattr(owner, name, counted)

for owner, name in ({functions}):
    with_kills(owner, name)
"""


def kill_at(step: int, functions: Iterable[str], *, imports: str, after: bool = False) -> str:
    """Return code that kills a server at a call.

    Args:
        step: which call of these functions kills the server, from 1 on.
        functions: the names of functions and methods, such as `Store.expire`.
        imports: the imports of their owners.
        after: whether the server is killed at the end of the call instead of the beginning.
    """
    pairs = "".join("({}, {!r}), ".format(*name.rsplit(".", 1)) for name in functions)
    calls = {"before": "pass", "after": "count()"} if after else {"before": "count()", "after": "pass"}
    return _KILL_AT.format(step=step, functions=pairs, imports=imports, **calls)


def is_killed(data: Path, injected: str, *, is_finished: Callable[[RunningServer], bool], **settings: Any) -> bool:
    """Run a server until it kills itself or has finished. Return whether it was killed.

    Args:
        data: the data folder.
        injected: the code that kills the server.
        is_finished: returns whether the server has done its work.
        settings: the environment of the server.
    """
    servers = []
    try:
        with running_server(data, injected=injected, checks_store=False, **settings) as server:
            servers.append(server)
            wait_until(
                lambda: server.process.poll() is not None or is_finished(server),
                description="the server is killed, or has finished",
            )
            return server.process.poll() == -signal.SIGKILL
    except AssertionError:
        # It was killed before it was ready, or while it stopped.
        if servers and servers[0].process.poll() != -signal.SIGKILL:
            raise
        return True
