"""hipcc's kernels for gfx906, run by the interpreter: right, and equal to the reference."""

from dataclasses import replace

import numpy as np
import pytest
from machine_plans import PLANS, prepared, result_of
from profiles import deep, mostly_deep
from sampled_blocks import check_blocks, sample

from dscore.algorithms.direct import DirectTiling
from dscore.backends.machine_code import arithmetic, disassembly, launch
from dscore.backends.machine_code import backend as machine_code
from dscore.backends.machine_code.backend import Gfx906AnySizes, Gfx906Backend
from dscore.backends.reference import machine
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.compilers import missing_compiler
from dscore.checking import bound
from dscore.checking.check import check_kernel
from dscore.core import catalog
from dscore.core.backend import backend
from dscore.core.errors import CompileError, UnavailableError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = missing_compiler("hip") or disassembly.missing_objdump()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module", params=[Gfx906Backend, deep(Gfx906AnySizes)], ids=["fixed", "any"])
def interpreter(request):
    """The backend with the kernels of all plans, which one library holds."""
    return prepared(request.param())


def fused(self, sums, a, b, product, lanes=None, predicated=False):
    """`Blocks.fma` of the reference with one rounding, as the machine code's v_fmac_f32 has it."""
    result = arithmetic.fma(np.ascontiguousarray(np.broadcast_to(a, sums.shape)), b, sums)
    np.copyto(sums, result, where=np.broadcast_to(lanes, sums.shape) if predicated else True)


APART = [name for name in PLANS if not name.startswith("winograd")]


@pytest.mark.parametrize("name", PLANS)
def test_machine_code_is_within_the_bound_and_writes_nothing_else(interpreter, name):
    kernel = interpreter.compile(PLANS[name])
    accuracy = check_kernel(kernel.plan, kernel, *bound.sample(kernel.plan.problem, 3))
    assert accuracy.ok, str(accuracy)


# Of Winograd's transforms products are not rounded either, and its blocks work for one another.
@pytest.mark.parametrize("name", APART)
def test_machine_code_gives_the_bits_of_the_reference_but_for_two_things(interpreter, name,
                                                                          monkeypatch):
    """A product is not rounded before it is added, and an exponential may be another one."""
    result = result_of(interpreter.compile(PLANS[name]))
    monkeypatch.setattr(machine.Blocks, "fma", fused)
    wanted = result_of(ReferenceBackend().compile(PLANS[name]))
    if PLANS[name].problem.spec.activation in ("silu", "sigmoid"):
        units = result.view(np.int32) - wanted.view(np.int32)
        assert np.abs(units).max() <= 4
    else:
        assert np.array_equal(result.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("name", ["gemm, slices", "rows through LDS", "direct",
                                  *["winograd, unfused"] * ("winograd, unfused" in PLANS)])
def test_whole_numbers_give_the_reference_s_bits_as_it_is(interpreter, name):
    problem = PLANS[name].problem
    inputs = [one if one is None else np.round(4 * one) for one in bound.sample(problem, 1)]
    results = []
    for one in (interpreter, ReferenceBackend()):
        out = np.full(problem.y_shape, np.nan, np.float32)
        one.compile(PLANS[name])(*inputs, out)
        results.append(out.view(np.uint32))
    assert np.array_equal(*results)


def test_wavefronts_in_batches_of_any_number_give_one_result(interpreter, monkeypatch):
    kernel = interpreter.compile(PLANS["column reuse"])
    whole = result_of(kernel)
    monkeypatch.setattr(launch, "_WAVES_TOGETHER", 2)
    assert np.array_equal(result_of(kernel), whole)


def taking_turns(order):
    """`Batch._next` where one wavefront of a block runs to its next barrier, then the next one.

    *order* has the place of each wavefront.
    """
    def following(batch, ready):
        end = len(batch.program.blocks)
        place = np.where(ready == end, len(order), order[batch.wave_of_block])
        lowest = ready[place == place.min()].min()
        return lowest, (place == place.min()) & (ready == lowest)
    return following


@pytest.mark.parametrize("name", mostly_deep(
    [name for name in PLANS if PLANS[name].launch.threads > 64], "gemm, slices"))
def test_no_result_depends_on_the_order_of_wavefronts_between_barriers(interpreter, name,
                                                                       monkeypatch):
    kernel = interpreter.compile(PLANS[name])
    wanted, waves = result_of(kernel), kernel.plan.use.waves
    for order in (np.arange(waves)[::-1], np.random.default_rng(7).permutation(waves)):
        monkeypatch.setattr(launch.Batch, "_next", taking_turns(order))
        assert np.array_equal(result_of(kernel), wanted)


@pytest.mark.parametrize("name", APART)
def test_blocks_write_their_own_outputs_and_no_others(interpreter, name):
    kernel = interpreter.compile(PLANS[name])
    problem, blocks = kernel.plan.problem, kernel.plan.launch.blocks
    inputs = bound.sample(problem, 4)
    wanted = bound.expected(problem, *inputs)
    some = sample(kernel.plan, max(1, blocks // 2))
    for numbers in (some, sorted({*range(blocks)} - {*some})):
        assert check_blocks(kernel, numbers, inputs, wanted).ok


def test_blocks_that_write_too_little_or_too_much_are_noticed(interpreter):
    kernel = interpreter.compile(PLANS["rows"])
    inputs = bound.sample(kernel.plan.problem, 4)
    wanted = bound.expected(kernel.plan.problem, *inputs)

    class Other:
        plan = kernel.plan

        def __init__(self, numbers):
            self.numbers = numbers

        def run_blocks(self, _, *arrays):
            kernel.run_blocks(self.numbers, *arrays)
    assert check_blocks(Other([0, 2]), [0, 2], inputs, wanted).ok
    assert not check_blocks(Other([0]), [0, 2], inputs, wanted).ok
    with pytest.raises(AssertionError, match="wrote outputs of others"):
        check_blocks(Other([0, 1, 2]), [0, 2], inputs, wanted)


def test_no_kernel_depends_on_what_the_result_held_before(interpreter):
    kernel = interpreter.compile(PLANS["gemm"])
    out = np.zeros(kernel.plan.problem.y_shape, np.float32)
    kernel(*bound.sample(kernel.plan.problem, 0), out)
    assert np.array_equal(out, result_of(kernel))


def test_the_registry_knows_it_and_a_plan_of_other_wavefronts_is_refused():
    h200 = make_plan(parse_problem("n1c8h5w5_o16k1"), catalog.device("h200"), DirectTiling(64, 2))
    here = backend("gfx906")
    assert [violation.code for violation in here.refuses(h200)] == ["E-WAVEFRONT"]
    with pytest.raises(UnavailableError, match="E-WAVEFRONT"):
        here.compile(h200)


def test_lds_other_than_the_plan_s_is_a_fault(interpreter):
    wrong = replace(PLANS["gemm"], use=replace(PLANS["gemm"].use, lds_bytes=4096))
    with pytest.raises(CompileError, match=r"its plan 4,096 B"):
        interpreter.compile(wrong)


def test_a_machine_without_objdump_says_what_to_install(monkeypatch):
    monkeypatch.setenv("DSCORE_OBJDUMP", "no-such-objdump")
    assert "llvm-objdump is missing" in str(Gfx906Backend().missing())


def test_a_kernel_of_another_float_mode_is_refused(interpreter, monkeypatch):
    monkeypatch.setattr(machine_code, "_FLOAT_MODE", 0xC0)
    machine_code._program.cache_clear()
    with pytest.raises(UnavailableError, match="float mode 0xf0"):
        interpreter.compile(PLANS["gemm"])
