"""Values of any kind in every argument: refused by a short SpecError, and nothing is called."""

import re
from contextlib import suppress
from dataclasses import fields, replace
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dscore
from dscore.core.backend import Backend, backend
from dscore.core.errors import SpecError, require_int, shown
from dscore.core.plan import Launch, ResourceUse
from dscore.core.token import MOST_CHARACTERS

X, W = np.ones((1, 4, 5, 5), np.float32), np.ones((4, 4, 3, 3), np.float32)
HUGE = 10**5000  # of more digits than Python writes
DIRECT = dict(algorithm="direct", threads=64, thread_c=1)
TOKEN = "n1c4h5w5_o4k3"


class Faulty:
    """An object that raises whatever is asked of it."""

    def __repr__(self):
        raise RuntimeError("no representation")

    def __index__(self):
        raise RuntimeError("no index")


JUNK = [None, True, 3, -1, HUGE, -HUGE, 2.5, float("nan"), float("inf"), 1j, "", "x" * 5000, "\0",
        "\ud800", b"P13", b"", [], [1, 2], (), {}, {1: 2}, set(), object(), Faulty(), int, len,
        memoryview(bytearray(b"P13")), np.ones(3), np.ma.masked, X, np.str_("x"), np.int64(7)]
DOORS = {
    "plan_for": dscore.plan_for,
    "plan_for device": lambda junk: dscore.plan_for(TOKEN, (junk,)),
    "plan_for rules": lambda junk: dscore.plan_for(TOKEN, rules=junk),
    "plan_for backend": lambda junk: dscore.plan_for(TOKEN, backend=(junk,)),
    "solve": dscore.solve,
    "solve masked": lambda junk: dscore.solve(TOKEN, masked=(junk,)),
    "solve algorithm": lambda junk: dscore.solve(TOKEN, algorithm=(junk,)),
    "validate": lambda junk: dscore.validate(junk, DIRECT),
    "validate tiling": lambda junk: dscore.validate(TOKEN, junk),
    "validate field": lambda junk: dscore.validate(TOKEN, {**DIRECT, "threads": (junk,)}),
    "validate masked": lambda junk: dscore.validate(TOKEN, DIRECT, masked=(junk,)),
    "explain": dscore.explain,
    "trace": dscore.trace,
    "prepare": lambda junk: dscore.prepare([(junk,)], backend="reference"),
    "prepare many": lambda junk: dscore.prepare(np.array(7) if np.iterable(junk) else junk,
                                                backend="reference"),
    "trace seed": lambda junk: dscore.trace(TOKEN, DIRECT, seed=(junk,)),
    "tiling": lambda junk: dscore.tiling((junk,)),
    "tiling algorithm": lambda junk: dscore.tiling(algorithm=junk, threads=64, thread_c=1),
    "ConvProblem": lambda junk: dscore.ConvProblem(junk, 1, 5, 5),
    "x": lambda junk: dscore.conv([junk], W),
    "bias": lambda junk: dscore.conv(X, W, (junk,)),
    "out": lambda junk: dscore.conv(X, W, out=(junk,)),
    "stride": lambda junk: dscore.conv(X, W, stride=(junk,)),
    "padding": lambda junk: dscore.conv(X, W, padding=(junk,)),
    "groups": lambda junk: dscore.conv(X, W, groups=(junk,)),
    "activation": lambda junk: dscore.conv(X, W, activation=(junk,)),
    "backend": lambda junk: dscore.conv(X, W, backend=(junk,)),
    "backend text": lambda junk: dscore.conv(X, W, backend=f"{shown(junk)}:{shown(junk)}"),
    "arithmetic": lambda junk: dscore.conv(X, W, arithmetic=(junk,)),
    "plan": lambda junk: dscore.conv(X, W, plan=(junk,)),
}


@pytest.mark.parametrize("door", DOORS)
def test_junk_is_refused_in_a_few_words(door):
    for junk in JUNK:
        with pytest.raises(SpecError) as caught:
            DOORS[door](junk)
        assert len(str(caught.value)) < 1000


PAIRS = ("stride", "padding", "dilation")


@pytest.mark.parametrize("option", [*PAIRS, "groups", "activation", "backend", "arithmetic", "plan",
                                    "out"])
def test_options_of_other_types_are_refused(option):
    """Bare, where a tuple around them would hide what each does as a key of the call cache."""
    for junk in JUNK:
        with suppress(SpecError):
            dscore.conv(X, W, **{option: junk})
            assert junk is None or (option in PAIRS and isinstance(junk, int | np.integer | list))


def test_a_wrong_name_of_an_argument_is_pythons_own_error():
    for call in (dscore.conv, dscore.plan_for, dscore.solve, dscore.validate, dscore.explain,
                 dscore.trace):
        with pytest.raises(TypeError, match="unexpected keyword argument 'strides'"):
            call(X, W, strides=2)


@pytest.mark.parametrize("make", [dscore.plan_for, dscore.solve, dscore.explain, dscore.trace,
                                  lambda problem: dscore.validate(problem, DIRECT)])
@pytest.mark.parametrize("problem", [
    "n" + "9" * 5000 + "c1h1w1_o1k1", "n1c1h1w1_o1k" + "1" * 4400, "P1-" * 3000, "P" * 9000,
    "n1c1h1w1_o1k1_" + "x" * 9000])
def test_a_problem_of_thousands_of_characters_is_refused(make, problem):
    with pytest.raises(SpecError, match=f"at most {MOST_CHARACTERS} characters") as caught:
        make(problem)
    assert len(str(caught.value)) < 300


def test_digits_are_ascii():
    with pytest.raises(SpecError):
        dscore.plan_for("n１c8h5w5_o8k3")


@pytest.mark.parametrize("key", [1, None, (1, 2), np.True_, b"threads", "x" * 5000])
@pytest.mark.parametrize("algorithm", [{}, {"algorithm": "direct"}])
def test_a_field_of_a_tiling_is_named_by_a_text(key, algorithm):
    fields = {**algorithm, "threads": 64, "thread_c": 1, key: 1}
    for call in (lambda: dscore.tiling(fields), lambda: dscore.validate(TOKEN, fields),
                 lambda: dscore.conv(X, W, plan=fields)):
        with pytest.raises(SpecError, match="a field is named by a text"):
            call()


def test_fields_of_a_tiling_are_any_mapping():
    fields = MappingProxyType(DIRECT)
    assert dscore.tiling(fields) == dscore.tiling(**DIRECT)
    assert dscore.plan_for(TOKEN, tiling=fields).tiling == dscore.tiling(fields)


class Two:
    """An integer that is no int, as those of tensors and of other libraries are."""

    def __index__(self):
        return 2


@pytest.mark.parametrize("two", [Two(), np.uint8(2), np.array(2)])
def test_any_integer_counts(two):
    """NumPy's own of 8 bits would overflow in what it is multiplied with."""
    assert dscore.validate(TOKEN, DIRECT, block_n=two) == dscore.validate(TOKEN, DIRECT, block_n=2)
    assert dscore.trace(TOKEN, DIRECT, seed=two) == dscore.trace(TOKEN, DIRECT, seed=2)
    y = dscore.conv(X, W, None, two, two, (two, 1), 1)
    assert np.array_equal(y, dscore.conv(X, W, None, 2, 2, (2, 1), 1))


def test_a_trace_is_of_the_problem_that_is_stated():
    plan = dscore.plan_for("n1c1h5w5_o1k3")
    assert dscore.trace("n1c1h5w5_o1k3", plan).fmas
    with pytest.raises(SpecError, match="the plan is for n1c1h5w5_o1k3"):
        dscore.trace(TOKEN, plan)


def test_a_backend_may_be_named():
    assert dscore.plan_for(TOKEN, backend="reference") == dscore.plan_for(TOKEN)
    with pytest.raises(SpecError, match="unknown backend 'cudnn'"):
        dscore.plan_for(TOKEN, backend="cudnn")


CALLS = []


def called():
    CALLS.append("called")


class Bare:
    def __init__(self):
        CALLS.append("made")


@pytest.mark.parametrize("target", ["builtins:exit", "sys:exit", "builtins:input", "builtins:dict",
                                    f"{__name__}:called", f"{__name__}:Bare", "no.such:Module", ":",
                                    "..:x", "os:path.join"])
def test_what_is_no_backend_is_never_called(target, capsys):
    with pytest.raises(SpecError, match="backend"):
        dscore.conv(X, W, backend=target)
    assert CALLS == []
    assert capsys.readouterr() == ("", "")


def test_a_backend_may_set_its_values_when_it_is_made():
    assert isinstance(backend("tuning_backends:Compiled"), Backend)


class Producer:
    """A producer of DLPack that lacks a member, or states something else than it exports."""

    def __init__(self, array, **stated):
        self.array = array
        vars(self).update({"shape": array.shape, "dtype": array.dtype} | stated)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return 1, 0


def lacking(member):
    producer = Producer(X)
    delattr(producer, member)
    return producer


class Broken(Producer):
    def __dlpack__(self, **options):
        raise BufferError("the memory is gone")


class Nowhere(Producer):
    def __dlpack_device__(self):
        return None


@pytest.mark.parametrize(("x", "message"), [
    (lambda: lacking("dtype"), "x is a Producer without dtype; pass np.from_dlpack(x)"),
    (lambda: lacking("shape"), "x is a Producer without shape"),
    (lambda: Producer(X, shape="ab"), "x: the Producer does not state its shape and its device"),
    (lambda: Producer(X, shape=None), "x: the Producer does not state its shape and its device"),
    (lambda: Nowhere(X), "x: the Nowhere does not state its shape and its device"),
    (lambda: Broken(X), "x: the Broken cannot be read by DLPack: the memory is gone"),
    (lambda: Producer(X, shape=(1, 4, 9, 9)), "by DLPack float32 of shape (1, 4, 5, 5)"),
    (lambda: Producer(X.astype("f8"), dtype="float32"), "by DLPack float64 of shape (1, 4, 5, 5)"),
    (lambda: np.ndarray, "x must be an array (NumPy, PyTorch, or any with DLPack), got <class"),
])
def test_producers_that_do_not_keep_the_protocol_are_refused(x, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        dscore.conv(x(), Producer(W))


@given(st.one_of(st.integers(), st.text(), st.floats(), st.binary(),
                 st.recursive(st.integers(), st.lists)))
def test_what_is_shown_of_a_value_is_one_short_line(value):
    assert len(shown(value)) <= 100
    assert len(shown(value).splitlines()) == 1


@given(st.integers())
def test_an_integer_is_within_its_limits_or_refused(number):
    inside = 1 <= number < 2**63
    try:
        assert require_int(number, "size") == number
        assert inside
    except SpecError:
        assert not inside


@pytest.mark.parametrize(("x", "w", "groups", "fix"), [
    ((1, 32, 9, 9), (32, 1, 3, 3), 1, "; groups=32 takes 32"),
    ((1, 9, 9, 32), (32, 1, 3, 3), 32, "; the last axis of x has 32: if these are its channels, "
                                       'pass layout="nhwc"'),
    ((9, 7, 4), (8, 4, 1, 1), 1, 'pass layout="nhwc"'),
    ((1, 32, 9, 9), (33, 1, 3, 3), 1, "takes 1 * 1 = 1"),  # 33 filters are in no 32 groups
    ((1, 4, 9, 9), (8, 3, 3, 3), 1, "takes 3 * 1 = 3"),
    ((1, 4, 9, 9), (8, 0, 3, 3), 1, "takes 0 * 1 = 0")])
def test_channels_that_differ_are_told_what_may_be_meant(x, w, groups, fix):
    with pytest.raises(SpecError) as raised:
        dscore.conv(np.ones(x, np.float32), np.ones(w, np.float32), groups=groups)
    assert str(raised.value).endswith(fix)


PLAN = dscore.plan_for("n1c4h5w5_o4k3", "z100sm", tiling=DIRECT)
PLAN_DOORS = {"conv": lambda plan: dscore.conv(X, W, plan=plan, backend="reference"),
              "explain": dscore.explain, "trace": lambda plan: dscore.trace(TOKEN, plan)}


@pytest.mark.parametrize("door", PLAN_DOORS)
def test_a_plan_that_is_whole_is_taken(door):
    PLAN_DOORS[door](PLAN)
    PLAN_DOORS[door](dscore.plan_for(TOKEN, "h200", "paper"))


@pytest.mark.parametrize("field", [field.name for field in fields(PLAN)])
def test_junk_in_a_field_of_a_plan_is_refused(field):
    for junk in JUNK:
        kinds = (int, type(None)) if field == "reported_registers" else type(getattr(PLAN, field))
        if isinstance(junk, kinds) or junk is True:  # which is an int
            continue
        with pytest.raises(SpecError, match=field) as caught:
            replace(PLAN, **{field: junk})
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("door", PLAN_DOORS)
@pytest.mark.parametrize("changes", [
    {"launch": Launch(1, 64, 0)}, {"further_launches": (Launch(1, 64, 0),)},
    {"use": ResourceUse(32, 1, 0, 1)}, {"workspace_bytes": 8}, {"masked": not PLAN.masked},
    {"compiled_registers": 1}, {"cost": replace(PLAN.cost, seconds=1.0)}])
def test_a_plan_of_which_something_was_replaced_is_refused(door, changes):
    with pytest.raises(SpecError, match="was replaced"):
        PLAN_DOORS[door](replace(PLAN, **changes))
