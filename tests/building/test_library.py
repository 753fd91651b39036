"""Kernels of a library are held to the plan, by rows of a table as a library would have them."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import dscore
from dscore.building.codegen import KernelSource
from dscore.building.library import LoadedKernel
from dscore.core.errors import CompileError

PLAN = dscore.plan_for("n1c8h5w5_o8k3p1g8")


def loaded(plan, **row):
    """The kernel of a library whose table has this row."""
    source = KernelSource(plan, "any")
    row["workspace_bytes"] = partial(lambda bytes_of_it, shape: bytes_of_it, row["workspace_bytes"])
    table = {source.name: SimpleNamespace(wavefront=64, alignment=4, **row)}
    return LoadedKernel(SimpleNamespace(path=Path("kernels.so"), kernels=table), source)


@pytest.mark.parametrize(("workspace_bytes", "operands"), [(0, 4), (4096, 5)])
def test_a_row_as_the_plan_has_it_is_taken(workspace_bytes, operands):
    plan = replace(PLAN, workspace_bytes=workspace_bytes)
    kernel = loaded(plan, operands=operands, workspace_bytes=workspace_bytes)
    assert (kernel.operands, kernel.workspace_bytes) == (operands, workspace_bytes)


@pytest.mark.parametrize(("workspace_bytes", "row", "words"), [
    (0, dict(operands=5, workspace_bytes=0), "its kernel takes 5 operands, but conv has 4: x, w"),
    (64, dict(operands=4, workspace_bytes=64), "takes 4 operands, but conv has 5: .*, workspace"),
    (4096, dict(operands=5, workspace_bytes=4000),
     "built for a workspace of 4,000 B, the plan has one of 4,096 B; build it again"),
    (4096, dict(operands=5, workspace_bytes=8192), "8,192 B, the plan has one of 4,096 B"),
    (0, dict(operands=4, workspace_bytes=64), "of 64 B, the plan has one of 0 B"),
])
def test_a_row_that_is_not_the_plans_is_refused(workspace_bytes, row, words):
    with pytest.raises(CompileError, match=words):
        loaded(replace(PLAN, workspace_bytes=workspace_bytes), **row)


def test_a_library_without_the_kernel_says_what_it_has():
    library = SimpleNamespace(path=Path("kernels.so"), kernels={"one": None, "two": None})
    with pytest.raises(CompileError, match=r"kernels.so has no kernel .*; it has one, two"):
        LoadedKernel(library, KernelSource(PLAN, "any"))
