"""Machine code of gfx90a: packed instructions, accumulator registers, and hipcc's kernels."""

import numpy as np
import pytest
from machine_plans import PLANS
from machine_programs import LANES, code, run, words

from dscore.backends.machine_code import disassembly
from dscore.backends.machine_code.arithmetic import fma
from dscore.backends.machine_code.backend import Gfx90aBackend, Gfx906Backend
from dscore.backends.machine_code.disassembly import _unified
from dscore.building.compilers import missing_compiler
from dscore.checking.check import check_plan
from dscore.core import catalog
from dscore.core.errors import CompileError, UnavailableError
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan, solve

MISSING = missing_compiler("hip") or disassembly.missing_objdump()
FLOATS = {n: np.random.default_rng(n).standard_normal(LANES, np.float32) for n in range(1, 7)}
BITS = {n: values.view(np.uint32) for n, values in FLOATS.items()}
EXACT = {"v_pk_fma_f32": fma, "v_pk_mul_f32": lambda a, b: a * b,
         "v_pk_add_f32": lambda a, b: a + b}


@pytest.mark.parametrize("low", [(0, 0, 0), (1, 0, 1)])
@pytest.mark.parametrize("high", [(1, 1, 1), (0, 1, 0)])
@pytest.mark.parametrize("opcode", EXACT)
def test_packed_arithmetic_selects_a_half_of_each_source(opcode, low, high):
    count = 3 if opcode == "v_pk_fma_f32" else 2
    sources = ", ".join(f"v[{n}:{n + 1}]" for n in (1, 3, 5)[:count])
    after = run(f"{opcode} v[1:2], {sources} op_sel:{str([*low[:count]]).replace(' ', '')} "
                f"op_sel_hi:{str([*high[:count]]).replace(' ', '')}", BITS)
    for result, which in ((1, low), (2, high)):
        wanted = EXACT[opcode](*[FLOATS[1 + 2 * n + which[n]] for n in range(count)])
        assert np.array_equal(after.vf[result][0], wanted)


def test_halves_that_are_not_selected_need_not_be_written():
    given = {n: BITS[n] for n in (1, 3, 4)}
    after = run("v_pk_mul_f32 v[5:6], v[1:2], v[3:4] op_sel_hi:[0,1]", given)
    assert np.array_equal(after.vf[6][0], FLOATS[1] * FLOATS[4])
    after = run("v_pk_fma_f32 v[5:6], v[3:4], v[3:4], 2.0 op_sel_hi:[1,1,0]", given)
    assert np.array_equal(after.vf[6][0], fma(FLOATS[4], FLOATS[4], np.float32(2)))
    with pytest.raises(UnavailableError, match="no pair of registers"):
        run("v_pk_mul_f32 v[5:6], v[1:2], 2.0", given)
    with pytest.raises(UnavailableError, match="modifier neg_lo"):
        run("v_pk_mul_f32 v[5:6], v[3:4], v[3:4] neg_lo:[1,0]", given)


def test_packed_move_takes_the_low_result_of_the_first_source():
    given = {n: words(n) for n in range(1, 5)}
    after = run("v_pk_mov_b32 v[1:2], v[2:3], v[1:2] op_sel:[1,0]", given)
    assert after.v[1][0].tolist() == words(3).tolist()
    assert after.v[2][0].tolist() == words(1).tolist()


def test_accumulator_registers_are_behind_the_vector_registers():
    [write, read, load, *_] = code("v_accvgpr_write_b32 a3, v1\nv_accvgpr_read_b32 v2, a3\n"
                                   "global_load_dwordx2 a[4:5], v[1:2], off")
    assert _unified(write, 32).operands == ("v35", "v1")
    assert _unified(read, 32).operands == ("v2", "v35")
    assert _unified(load, 32).operands == ("v[36:37]", "v[1:2]", "off")


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_kernels_for_gfx90a_are_within_the_bound():
    backend = Gfx90aBackend()
    plans = [make_plan(PLANS[name].problem, backend.device(), PLANS[name].tiling)
             for name in ("gemm, slices", "distribution, masked", "column reuse", "direct")]
    backend.prepare(plans)
    for plan in plans:
        accuracy = check_plan(backend, plan, 0)
        assert accuracy.ok, f"{plan.name}: {accuracy}"
        descriptor = backend.compile(plan).program.descriptor
        assert 0 < descriptor.accumulators <= descriptor.vgprs


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("token", ["n1c32h4w4_o32k1_float16_nhwc", "n1c32h4w4_o32k1_int8_nhwc",
                                   "n1c16h4w4_o16k3p1_bfloat16_nhwc"])
def test_a_gpu_without_matrix_units_has_no_kernel_of_such_products(token, tmp_path, monkeypatch):
    """One that left them out would be compiled, and its results zero."""
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    problem, device = parse_problem(token), catalog.device("gfx90a")
    tiling = next(one for one in solve(problem, device) if not one.computes("plain"))
    with pytest.raises(CompileError, match="matrix units of the GPU"):
        Gfx906Backend().compile(make_plan(problem, device, tiling))
