"""Growth: a toy element type, operation, backend and device, each added by a line."""

from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
import toy_algorithm
import toy_backend
import toy_operation
from profiles import mostly_deep

import dscore
from dscore import ops
from dscore.algorithms import registry
from dscore.algorithms.registry import case_of, tiling_from
from dscore.backends.emulated import EmulatedBackend
from dscore.bench.run import Comparison, bench
from dscore.building import codegen
from dscore.building.kernels import provide
from dscore.building.library import LoadedKernel, open_library
from dscore.checking import bound, conformance
from dscore.checking.check import check_plan
from dscore.core import backend, catalog
from dscore.core.errors import CompileError, InfeasibleError, SpecError, UnavailableError
from dscore.core.numerics import ELEMENTS, Element
from dscore.core.token import looks_like_token, parse_problem, problem_token
from dscore.measuring.runner import HostRunner, check
from dscore.solving import solver
from dscore.tuning import records, tune
from dscore.tuning.evaluator import HostEvaluator

Z100SM, H200 = catalog.device("z100sm"), catalog.device("h200")
SUM = "toy_sum_n2c9h5w7_o1k1_relu"
needs_compiler = pytest.mark.skipif(EmulatedBackend().missing() is not None,
                                    reason=str(EmulatedBackend().missing()))


# An element type: a line of numerics.

# Of those that take float32: kernels that assert that a vector of 16 bytes holds four elements, or
# that matrix units take these in parts.
BY_FOURS = {"implicit_gemm_universal", "implicit_warpgroup", "warpgroup_tf32"}
WIDE = [name for name in registry.names()
        if "float32" in registry.algorithm(name).elements and name not in BY_FOURS]

@pytest.fixture
def float64(monkeypatch):
    monkeypatch.setitem(ELEMENTS, "float64", Element("float64", 8, "double", 2.0**-53))
    for one in map(registry.algorithm, registry.names()):
        monkeypatch.setattr(type(one), "elements", ("float32", "float64"))


def test_a_toy_element_type_is_read_from_the_table_alone(float64):
    problem = parse_problem("n1c64h14w14_o384k1_float64_bias")
    assert problem_token(problem) == "n1c64h14w14_o384k1_float64_bias"
    assert [one.dtype for one in bound.sample(problem, 0)] == [np.float64] * 3
    short = replace(problem, spec=replace(problem.spec, dtype="float32"))
    assert ops.compulsory_bytes(problem) == 2 * ops.compulsory_bytes(short)
    for fields in (dict(wave_w=7, wave_c=16, repeat_w=2, repeat_c=2, group_c=16),
                   dict(tile_c=64, tile_p=64, wave_c=32, wave_p=32, lanes_c=8, slices=1,
                        step_c=16, stages=2)):
        use, half = (case_of(one, Z100SM, tiling_from(fields)).use for one in (problem, short))
        assert use.lds_bytes == 2 * half.lds_bytes
        assert use.registers > half.registers
    for device in (Z100SM, H200):
        plan = solver.best_plan(problem, device)
        assert plan.tiling.computes("plain"), "parts of two TF32 do not hold a float64"
        assert "double" in codegen.render([codegen.KernelSource(plan)])
    with pytest.raises(SpecError, match="int8, float64; got 'float128'"):
        dscore.ConvSpec.make(1, 1, 1, dtype="float128")


@needs_compiler
@pytest.mark.parametrize("name", mostly_deep(WIDE, "channel_distribution", "direct"))
def test_a_toy_element_type_conforms(float64, name, monkeypatch):
    types = []

    def checked(chosen, plan, seed):
        types.append(plan.problem.spec.dtype)
        return check_plan(chosen, plan, seed)

    monkeypatch.setattr(type(registry.algorithm(name)), "elements", ("float64",))
    monkeypatch.setattr(conformance, "check_plan", checked)
    report = conformance.conformance("emulated", examples=24, seed=2, algorithms=[name])
    assert report.ok, report.failures
    assert set(types) == {"float64"}


@needs_compiler
@pytest.mark.parametrize(("token", "options"), [
    ("n2c5h7w6_o3k3s2p1_float64_bias_relu6", dict(padding=1, stride=2, activation="relu6")),
    ("n1c16h4w4_o8k1_float64_bias", {})])
def test_a_toy_element_type_convolves(float64, token, options):
    problem = parse_problem(token)
    x, w, bias = bound.sample(problem, 0)
    y = dscore.conv(x, w, bias, backend="emulated", **options)
    assert y.dtype == np.float64
    assert bound.compare(y, bound.expected(problem, x, w, bias)).ok
    with pytest.raises(UnavailableError, match="dtype is float64, allowed float32"):
        dscore.conv(x, w, bias, backend="reference", **options)
    with pytest.raises(SpecError, match="all arrays must be of one dtype"):
        dscore.conv(x, w.astype(np.float32), bias, backend="emulated", **options)


def test_operands_are_rounded_to_the_accumulator_and_no_further(float64):
    problem = parse_problem("n1c1h40w50_o1k1_float64")
    x, w, bias = bound.sample(problem, 3)
    wanted = bound.expected(problem, x, w, bias)

    def result(fraction):
        """Products of operands with so many bits of fraction, at worst 2u + u of one product."""
        def rounded(values):
            mantissa, exponent = np.frexp(values)
            return np.ldexp(np.round(np.ldexp(mantissa, fraction)), exponent - fraction)
        return (rounded(x) * rounded(w)).astype(np.float32)

    assert bound.compare(result(24), wanted).ok
    assert bound.compare(result(24), wanted).share > 1 / 2
    assert not bound.compare(result(22), wanted).ok
    # A float32 operand is rounded by nobody.
    single = bound.expected(parse_problem("n1c1h40w50_o1k1"), x, w, bias)
    assert not bound.compare(result(24), single).ok


# An operation: a module and a line; an algorithm and a backend for it likewise.

@pytest.fixture
def toy_sum(monkeypatch):
    monkeypatch.setattr(ops, "_REGISTRY", dict(ops._REGISTRY))
    monkeypatch.setattr(backend, "_REGISTRY", dict(backend._REGISTRY))
    ops.register("toy_sum", "toy_operation:ToySum")
    backend.register("toy", "toy_backend:ToyBackend")
    registry.register("sum_pixels", "toy_operation:SumPixels")
    yield parse_problem(SUM)
    registry.unregister("sum_pixels")
    ops.operation.cache_clear()
    backend.backend.cache_clear()


def test_an_operation_stands_in_front_of_a_token():
    problem = parse_problem(SUM)
    assert (problem.operation, problem_token(problem)) == ("toy_sum", SUM)
    assert parse_problem("conv_n1c8h5w5_o8k1") == parse_problem("n1c8h5w5_o8k1")
    assert looks_like_token(SUM)
    assert catalog.find(SUM.upper(), batch=4)[0].name == SUM.replace("n2", "n4")
    assert str(problem) == "toy_sum pointwise 9x5x7->1 batch 2"
    for wrong in ("toy__sum_n1c8h5w5_o8k1", "_n1c8h5w5_o8k1", "t0y_n1c8h5w5_o8k1"):
        assert not looks_like_token(wrong)
        with pytest.raises(SpecError, match="not a problem"):
            parse_problem(wrong)
    with pytest.raises(SpecError, match="operation must be lower-case words"):
        replace(problem, operation="Sum")


def test_an_unknown_operation_is_answered_with_those_there_are(call):
    for ask in (solver.solve, solver.best_plan):
        with pytest.raises(SpecError, match="unknown operation 'toy_sum'; there are conv"):
            ask(parse_problem(SUM), Z100SM)
    assert call("explain", SUM).code == 2


def test_no_algorithm_takes_another_operation(toy_sum):
    for name in registry.names():
        [refused] = registry.algorithm(name).refuses(replace(toy_sum, operation="other"))
        assert (refused.code, refused.used) == ("E-OPERATION", "other")
    direct = tiling_from(dict(threads=64, thread_c=1))
    words = ("E-OPERATION: operation of direct is toy_sum, allowed conv, input_gradient, "
             "weight_gradient, quantise, mean; it takes a tiling of sum_pixels")
    with pytest.raises(SpecError, match=words):
        solver.make_plan(toy_sum, Z100SM, direct)
    with pytest.raises(InfeasibleError, match="none of gemm, direct runs it"):
        solver.solve(toy_sum, Z100SM, among=("gemm", "direct"))
    with pytest.raises(SpecError, match="E-OPERATION"):
        solver.make_plan(parse_problem("n1c8h5w5_o8k1"), Z100SM, toy_operation.SumTiling(64))


def test_a_toy_operation_is_solved_and_its_operands_are_counted(toy_sum, call):
    assert ops.compulsory_bytes(toy_sum) == 4 * (2 * 9 * 35 + 9 + 2 * 35)
    space = solver.solve(toy_sum, Z100SM)
    assert (space.algorithm.name, len(space)) == ("sum_pixels", 3)
    plan = space.plan(int(space.ranked()[0]))
    assert plan.name.startswith(f"{SUM}__sum_pixels_t")
    assert codegen.KernelSource(plan, "any").name.startswith("any_toy_sum_1x1x")
    shown = call("explain", SUM).out
    assert f"{ops.compulsory_bytes(toy_sum):,} B at" in shown
    assert f"{2 * 2 * 9 * 35:,} flops at" in shown


def test_a_toy_operation_runs_on_a_toy_backend_and_a_wrong_one_is_caught(
        toy_sum, call, monkeypatch):
    chosen, plan = backend.choose_backend("toy"), solver.best_plan(toy_sum, Z100SM)
    runner, evaluator = HostRunner(Z100SM), HostEvaluator(chosen, Z100SM, toy_sum, 1)
    first, second = runner.sets(toy_sum, 2, 5)
    assert [one.shape for one in first] == [(2, 9, 5, 7), (9,), (2, 5, 7)]
    assert not np.array_equal(first[0], second[0])
    everywhere = (lambda: check_plan(chosen, plan, 0), lambda: evaluator.judge(plan),
                  lambda: check(runner, chosen, plan, first),
                  lambda: bound.judge(np, toy_sum, first[:-1], first[-1]))
    runner.subject(chosen, plan, [first]).launch(0, 0)
    assert [judged().ok for judged in everywhere] == [True] * 4
    assert len(evaluator.seconds(plan, 3)) == 3
    assert "1 right" in call("run", SUM, "--backend", "toy").out
    result = tune.tune(toy_sum, Z100SM, "toy")
    assert records.tuned_plan(toy_sum, Z100SM, chosen, None).tiling == result.best.tiling
    with pytest.raises(SpecError, match="PyTorch has conv"):
        bench(Comparison(tuple(catalog.find(SUM)), backend="toy"))
    with pytest.raises(UnavailableError, match="E-ALGORITHM"):
        chosen.compile(solver.best_plan(parse_problem("n1c8h5w5_o8k1"), Z100SM))

    monkeypatch.setattr(toy_backend.ToyKernel, "first", 1)
    runner.subject(chosen, plan, [first]).launch(0, 0)
    assert [judged().ok for judged in everywhere] == [False] * 4
    assert call("run", SUM, "--backend", "toy").code == 1


@needs_compiler
def test_a_toy_operation_conforms_on_the_emulated_device(toy_sum):
    report = conformance.conformance("emulated", examples=20, algorithms=["sum_pixels"])
    assert report.ok, report.failures
    assert report.examples == {"sum_pixels": 20}


@needs_compiler
def test_a_kernel_that_takes_other_operands_is_refused(toy_sum, monkeypatch):
    text = toy_algorithm.KERNEL.replace("ToyTiling", "SumTiling").replace("Toy", "Sum")
    monkeypatch.setattr(toy_operation.SumPixels, "include", text)
    plan = solver.make_plan(replace(toy_sum, width=3), Z100SM, toy_operation.SumTiling(64))
    chosen, source = EmulatedBackend(), codegen.KernelSource(plan, "any")
    with pytest.raises(CompileError, match="its kernel takes 4 operands, but toy_sum has 3: x, "
                                           "scale, out"):
        chosen.compile(plan)
    stored = provide([source], chosen.target).kernels[source.name]
    with_workspace = replace(source, plan=replace(plan, workspace_bytes=64))
    with pytest.raises(CompileError, match="a workspace of 0 B, the plan has one of 64 B"):
        LoadedKernel(open_library(stored.library, stored.sha256), with_workspace)


# A device: a TOML file.

@pytest.fixture
def device_file(tmp_path):
    text = (files("dscore._specs") / "devices" / "z100sm.toml").read_text()
    for change in (('name = "z100sm"', 'name = "mine"'), ("wavefront = 64", "wavefront = 32")):
        assert text.count(change[0]) == 1
        text = text.replace(*change)
    path = tmp_path / "mine.toml"
    path.write_text(text + "asynchronous_copies = true\nbulk_copies = true\nearly_start = true\n"
                    'cluster_blocks = 4\nmatrix_types = ["tf32"]\n')
    return path


def test_a_toy_device_is_a_file(device_file, call, json_of):
    layers = catalog.layers()
    mine = catalog.device(device_file)
    rows, products = (solver.solve(layers[name], mine).case.tiling for name in ("D1", "P13"))
    assert rows.ahead.any()
    assert products.cluster.max() == 4
    assert {"plain", "tf32x3"} == set(products.arithmetic)
    bare = replace(mine, early_start=False, cluster_blocks=1, matrix_types=())
    rows, products = (solver.solve(layers[name], bare).case.tiling for name in ("D1", "P13"))
    assert not rows.ahead.any()
    assert products.cluster.max() == 1
    assert {"plain"} == set(products.arithmetic)
    plan = dscore.plan_for("D1", device_file)
    assert plan.name.endswith("__mine")
    assert json_of("explain", "D1", "--device", device_file)["plan"]["name"] == plan.name
    assert "mine (wavefront 32," in call("explain", "D1", "--device", device_file).out
    assert "mine" in call("space", "P13", "--device", device_file, "--top", 1).out


@needs_compiler
def test_a_toy_device_is_emulated(device_file, call):
    run = call("run", "n1c32h5w5_o24k1_relu", "--device", device_file, "--backend", "emulated")
    assert "1 right" in run.out
