"""Memory: threads share what one of them gives back."""

import subprocess
import sys
from pathlib import Path

import pytest

# Where a thread's own memory lies: in the heap of the program, or in an arena of its own.
PROGRAM = """
import ctypes, threading
from pathlib import Path
from embedsink.memory import share_memory_among_threads

def look():
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    found.append(malloc(4_000))

{call}
found = []
thread = threading.Thread(target=look)
thread.start()
thread.join()
[heap] = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]")]
start, end = (int(bound, 16) for bound in heap.split("-"))
print(start <= found[0] < end)
"""
IS_GLIBC = sys.platform == "linux" and not list(Path("/lib").glob("ld-musl-*"))


@pytest.mark.skipif(not IS_GLIBC, reason="only glibc gives each thread an arena")
@pytest.mark.parametrize(("call", "is_shared"), [("", False), ("share_memory_among_threads()", True)])
def test_threads_take_memory_from_one_place(call: str, is_shared: bool) -> None:
    command = [sys.executable, "-c", PROGRAM.format(call=call)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == str(is_shared)


# After one large piece was given back, glibc takes the next from the heap, and keeps that much of it.
LARGE = """
import ctypes
from pathlib import Path
from embedsink.memory import share_memory_among_threads

{call}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(8 * 1_048_576))
found = libc.malloc(8 * 1_048_576)
[heap] = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]")]
start, end = (int(bound, 16) for bound in heap.split("-"))
print(start <= found < end)
"""


@pytest.mark.skipif(not IS_GLIBC, reason="only glibc learns to keep large pieces")
@pytest.mark.parametrize(("call", "is_kept"), [("", True), ("share_memory_among_threads()", False)])
def test_large_pieces_go_back_to_the_system(call: str, is_kept: bool) -> None:
    command = [sys.executable, "-c", LARGE.format(call=call)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == str(is_kept)


def test_a_server_does_not_load_numpy() -> None:
    look = "import sys, embedsink.http.server; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n", "it takes 12 MiB, and only repairs need it"
