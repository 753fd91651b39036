"""What algorithms of pointwise layers on planes have in common: 16 bits in NCHW, and their input
gradients, on Hopper's warpgroups."""

from __future__ import annotations

from typing import Any

from dscore.algorithms.base import Algorithm
from dscore.algorithms.gemm_universal.tiling import channels_last
from dscore.algorithms.refusal import require_kind
from dscore.algorithms.warpgroup_gemm.limits import unmapped
from dscore.core.device import Device
from dscore.core.plan import Violation
from dscore.core.problem import ConvProblem


class PlaneAlgorithm(Algorithm):
    """Products of channels and of the pixels of planes, which the copy engine brings to LDS."""

    operations = ("conv", "input_gradient")
    elements = ("float16", "bfloat16")
    compared = True  # small layers gemm_universal takes faster

    def suits(self, device: Device) -> bool:
        return device.warpgroups

    def runs(self, problem: ConvProblem) -> tuple[Violation, ...]:
        if kind := require_kind(problem, self.name, "pointwise"):
            return kind
        if channels_last(problem):
            return (Violation("E-LAYOUT", f"planes of {self.name}", "of one pixel",
                              "of several; those of one are the same memory in NHWC"),)
        area = problem.out_height * problem.out_width
        return unmapped(problem, self.name) or self.unfit_planes(area)

    def unfit_planes(self, area: int) -> tuple[Violation, ...]:
        """Violation where the kernel takes no planes of *area* pixels; by default it takes any."""
        return ()

    def arithmetic(self, problem: ConvProblem, t: Any) -> Any:
        return "matrix16"
