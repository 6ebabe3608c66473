"""Calls in a daemon thread: each one has an outcome."""

import asyncio

import pytest

from embedsink.concurrency.daemon_thread import run_in_daemon_thread


def run(error: BaseException) -> object:
    def fail() -> object:
        raise error

    async def wait() -> object:
        return await asyncio.wait_for(run_in_daemon_thread(fail, name="test"), 5)

    return asyncio.run(wait())


def test_an_error_is_raised_by_the_future() -> None:
    with pytest.raises(ValueError, match="x"):
        run(ValueError("x"))


@pytest.mark.parametrize("error", [StopIteration("x"), SystemExit("x"), KeyboardInterrupt("x")], ids=type)
def test_an_error_that_would_end_the_event_loop_is_a_runtime_error(error: BaseException) -> None:
    with pytest.raises(RuntimeError, match="x") as raised:
        run(error)
    assert raised.value.__cause__ is error
