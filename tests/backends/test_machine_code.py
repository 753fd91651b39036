"""hipcc's kernels for gfx906, run by the interpreter: right, and equal to the reference."""

from dataclasses import replace

import numpy as np
import pytest

from dscore.algorithms.channel_distribution.tiling import ChannelDistributionTiling
from dscore.algorithms.direct import DirectTiling
from dscore.algorithms.gemm.tiling import GemmTiling
from dscore.algorithms.row_reuse.tiling import RowReuseTiling
from dscore.backends.machine_code import arithmetic, disassembly, launch
from dscore.backends.machine_code import backend as machine_code
from dscore.backends.machine_code.backend import Gfx906AnySizes, Gfx906Backend, MachineKernel
from dscore.backends.machine_code.basic_blocks import translate
from dscore.backends.machine_code.disassembly import disassemble
from dscore.backends.machine_code.hazards import hazards
from dscore.backends.machine_code.launch import Program
from dscore.backends.machine_code.objects import kernel_object
from dscore.backends.reference import machine
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.codegen import KernelSource
from dscore.building.compilers import missing_compiler
from dscore.checking import bound
from dscore.checking.check import check_kernel
from dscore.core import catalog
from dscore.core.backend import backend
from dscore.core.errors import CompileError, LaunchError, UnavailableError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = missing_compiler("hip") or disassembly.missing_objdump()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
Z100SM = catalog.device("z100sm")


def plan(token, tiling):
    return make_plan(parse_problem(token), Z100SM, tiling)


# Each algorithm with what differs in its machine code, small enough for the interpreter's tests.
PLANS = {
    "gemm": plan("n1c20h9w7_o37k1", GemmTiling(32, 32, 16, 32, 8, 1, 16, 2)),
    "gemm, slices": plan("n1c72h6w6_o24k1_bias_relu6", GemmTiling(16, 32, 16, 32, 8, 4, 32, 2)),
    "gemm, hardswish": plan("n2c9h5w5_o16k1_hardswish", GemmTiling(16, 32, 8, 32, 8, 1, 8, 2)),
    "gemm, silu": plan("n1c8h5w5_o16k1_bias_silu", GemmTiling(16, 32, 8, 32, 8, 1, 8, 2)),
    "distribution": plan("n1c48h4w6_o16k1_bias_relu",
                         ChannelDistributionTiling(2, 16, 3, 1, 8)),
    "distribution, masked": plan("n2c7h5w5_o9k1s2_hardswish",
                                 ChannelDistributionTiling(3, 4, 1, 2, 16)),
    "rows": plan("n1c5h9w13_o5k3p1g5_bias", RowReuseTiling(3, 2, 2, 8, 3)),
    "rows through LDS": plan("n2c6h11w14_o6k5s2p2g6_relu",
                             RowReuseTiling(2, 1, 3, 7, 6, staging="both")),
    "column reuse": plan("n1c3h7w35_o6k3x4p1d1x2g3_hardswish",
                         RowReuseTiling(2, 2, 2, 8, 3, column_reuse=True)),
    "direct": plan("n2c12h9w6_o8k3s2p1g4_bias", DirectTiling(64, 2)),
}


@pytest.fixture(scope="module", params=[Gfx906Backend, Gfx906AnySizes], ids=["fixed", "any"])
def interpreter(request):
    """The backend with the kernels of all plans, which one library holds."""
    made = request.param()
    made.prepare(list(PLANS.values()))
    return made


def fused(self, sums, a, b, product, lanes=None, predicated=False):
    """`Blocks.fma` of the reference with one rounding, as the machine code's v_fmac_f32 has it."""
    result = arithmetic.fma(np.ascontiguousarray(np.broadcast_to(a, sums.shape)), b, sums)
    np.copyto(sums, result, where=np.broadcast_to(lanes, sums.shape) if predicated else True)


def result_of(kernel, seed=0):
    out = np.full(kernel.plan.problem.y_shape, np.nan, np.float32)
    kernel(*bound.sample(kernel.plan.problem, seed), out)
    return out


@pytest.mark.parametrize("name", PLANS)
def test_machine_code_is_within_the_bound_and_writes_nothing_else(interpreter, name):
    kernel = interpreter.compile(PLANS[name])
    accuracy = check_kernel(kernel.plan, kernel, *bound.sample(kernel.plan.problem, 3))
    assert accuracy.ok, str(accuracy)


@pytest.mark.parametrize("name", PLANS)
def test_machine_code_gives_the_bits_of_the_reference_but_for_two_things(interpreter, name,
                                                                          monkeypatch):
    """A product is not rounded before it is added, and an exponential is another one."""
    result = result_of(interpreter.compile(PLANS[name]))
    monkeypatch.setattr(machine.Blocks, "fma", fused)
    wanted = result_of(ReferenceBackend().compile(PLANS[name]))
    if PLANS[name].problem.spec.activation == "silu":
        units = result.view(np.int32) - wanted.view(np.int32)
        assert 0 < np.abs(units).max() <= 4
    else:
        assert np.array_equal(result.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("name", ["gemm, slices", "rows through LDS", "direct"])
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


@pytest.fixture(scope="module")
def compiled():
    """The backend with the kernels that faults are planted in."""
    made = Gfx906Backend()
    made.prepare(list(PLANS.values()))
    return made


def executed(kernel):
    """Addresses of the basic blocks that a kernel enters, and its result."""
    addresses, whole = set(), launch.Batch._execute

    def noting(batch, block, following, end):
        addresses.update(one.address for one in block.instructions)
        whole(batch, block, following, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch.Batch, "_execute", noting)
        return addresses, result_of(kernel)


def planted(compiled, name, fault, every=1):
    """What became of a kernel with a *fault* in one instruction after another: caught or not.

    *fault* makes another instruction of one, or None; *every* so many of those that are executed
    get it. It is caught where the interpreter or the check of hazards refuses it, or where the
    result is another one.
    """
    plan = PLANS[name]
    symbol = KernelSource(plan, compiled.sizes).name
    kernel = kernel_object(compiled._stored[symbol].library, symbol, "gfx906")
    code = disassemble(kernel, "gfx906")
    addresses, right = executed(compiled.compile(plan))
    places = [at for at, one in enumerate(code)
              if fault(one) and (one.address in addresses or one.opcode == "s_barrier")]
    caught = []
    for at in places[::every]:
        changed = [*code[:at], fault(code[at]), *code[at + 1:]]
        try:
            program = Program(translate(changed, name), kernel.descriptor)
            result = result_of(MachineKernel(plan, compiled.sizes, program))
            caught.append(bool(hazards(changed)) or not np.array_equal(result, right))
        except (LaunchError, UnavailableError):
            caught.append(True)
    return caught


def without(*opcodes):
    """A fault: an s_nop in place of these instructions."""
    def fault(instruction):
        if instruction.opcode in opcodes:
            return replace(instruction, opcode="s_nop", operands=("0",), modifiers={})
        return None
    return fault


def moved(instruction):
    """A fault: an access of memory one element further on."""
    if not instruction.opcode.startswith(("global_", "ds_read_b", "ds_write_b")):
        return None
    offset = int(instruction.modifiers.get("offset", "0")) + 4
    return replace(instruction, modifiers={**instruction.modifiers, "offset": str(offset)})


FAULTY = ["gemm, slices", "distribution", "rows through LDS"]


@pytest.fixture
def impatient(monkeypatch):
    """A kernel with a fault may not end."""
    monkeypatch.setattr(launch, "_MOST_STEPS", 3000)


@pytest.mark.parametrize("name", FAULTY)
def test_every_barrier_that_is_left_out_is_noticed(compiled, impatient, name):
    caught = planted(compiled, name, without("s_barrier"))
    assert caught
    assert all(caught)


@pytest.mark.parametrize("name", FAULTY)
def test_every_access_one_element_further_on_is_noticed(compiled, impatient, name):
    caught = planted(compiled, name, moved, every=3)
    assert len(caught) >= 3
    assert all(caught)


@pytest.mark.parametrize("name", FAULTY)
def test_waits_that_are_left_out_are_noticed(compiled, impatient, name):
    """Some have nothing to wait for: behind a barrier, or where loads that a branch may skip are
    not skipped. What the hardware computes does not depend on these.
    """
    caught = planted(compiled, name, without("s_waitcnt"))
    assert sum(caught) >= 5


@pytest.mark.parametrize("name", FAULTY)
def test_every_multiply_add_and_store_that_is_left_out_is_noticed(compiled, impatient, name):
    caught = planted(compiled, name, without(
        "v_fmac_f32", "v_fma_f32", "ds_write_b32", "ds_write_b128", "global_store_dword"), every=5)
    assert len(caught) >= 3
    assert all(caught)
