"""Values made once: by one of many threads, again after a failure, and in a forked process."""

import os
import threading
import time

import pytest

from dscore.core.once import Locks, once


def in_threads(work, count=16):
    """*work* in *count* threads that begin at the same moment; what each returns."""
    barrier, results = threading.Barrier(count), []

    def run(number):
        barrier.wait()
        results.append(work(number))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_that_ask_at_once_get_one_object():
    calls = []

    @once
    def memo(key):
        calls.append(key)
        time.sleep(0.02)
        return object()

    assert len(set(in_threads(lambda number: memo(number % 2)))) == 2
    assert sorted(calls) == [0, 1]
    assert set(memo.values()) == {memo(0), memo(1)}


def test_the_maker_of_one_value_may_ask_for_another():
    @once
    def total(count):
        return count and count + total(count - 1)

    assert sorted(in_threads(total))[-1] == 120


def test_an_exception_is_not_remembered():
    attempts = []

    @once
    def memo():
        attempts.append(None)
        if len(attempts) < 3:
            raise OSError("not yet")
        return "made"

    for _ in range(2):
        with pytest.raises(OSError, match="not yet"):
            memo()
    assert memo() == memo() == "made"
    assert len(attempts) == 3


def test_none_is_a_value_and_keywords_are_part_of_the_key():
    calls = []

    @once
    def memo(*args, **kwargs):
        calls.append((args, kwargs))

    for _ in range(2):
        assert memo(1) is memo(b=2, a=1) is memo(a=1, b=2) is None
    assert calls == [((1,), {}), ((), {"b": 2, "a": 1})]


def test_cleared_values_are_made_again():
    memo = once(object)
    first = memo()
    memo.cache_clear()
    assert memo.values() == ()
    assert memo() is not first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_does_not_wait_for_a_thread_it_has_not():
    locks, held, done = Locks(), threading.Event(), threading.Event()

    def hold():
        with locks.of("key"):
            held.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    child = os.fork()
    if not child:
        os._exit(0 if locks.of("key").acquire(timeout=10) else 1)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
