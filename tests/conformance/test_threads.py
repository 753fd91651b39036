"""First calls from many threads of a fresh process: every result is right."""

import subprocess
import sys

import pytest
from profiles import deep

from dscore.backends.emulated import EmulatedBackend

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

PROGRAM = """
import sys, threading
import numpy as np

backend, count = sys.argv[1], 16
barrier, failures = threading.Barrier(count), []
x = np.arange(2 * 4 * 5 * 6, dtype=np.float32).reshape(2, 4, 5, 6)
# The same problem for every other thread, one of two for the rest. All sums are exact.
weights = [np.ones((4, 1, 1, 1), np.float32), np.full((4, 1, 1, 1), 2, np.float32)]

def call(number):
    try:
        barrier.wait()
        import dscore
        groups = 4 if number % 4 else 2
        w = weights[number % 2] if number % 4 else np.ones((2, 2, 1, 1), np.float32)
        y = dscore.conv(x, w, groups=groups, backend=backend)
        wanted = x * (1 + number % 2) if number % 4 else x[:, ::2] + x[:, 1::2]
        assert np.array_equal(y, wanted), number
    except BaseException as failed:
        failures.append(failed)

threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if failures:
    raise failures[0]
"""


# After the first run kernels come from the cache, so that threads meet at loading them.
@pytest.mark.parametrize("run", [0, *map(deep, range(1, 6))])
def test_sixteen_threads_may_all_be_the_first_to_call(run):
    done = subprocess.run([sys.executable, "-c", PROGRAM, "emulated"], capture_output=True,
                          text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
