"""Conformance cases: plans for drawn problems on drawn templates, and the seed of their data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dscore.algorithms.registry import algorithm, algorithm_of, case_of
from dscore.algorithms.templates import Template
from dscore.core.device import Device
from dscore.core.plan import Plan
from dscore.solving.rules import keeps_all
from dscore.solving.solver import make_plan


@dataclass(frozen=True)
class ConformanceCase:
    """A plan and the seed of its data."""

    plan: Plan
    seed: int


def templates(name: str, devices: Sequence[Device], dtype: str | None = None
              ) -> st.SearchStrategy[Template]:
    """Templates of an algorithm on any of *devices* that it suits, of one element type or (None) of
    any."""
    one = algorithm(name)
    drawn = st.one_of([one.cases().templates(device) for device in devices if one.suits(device)])
    return drawn if dtype is None else drawn.filter(lambda one: one.element.name == dtype)


@st.composite
def cases_on(draw: Any, template: Template) -> ConformanceCase:
    """Cases that run on the kernel of *template*; a problem that its tiling does not fit is none.
    """
    device, tiling = template.device, template.tiling
    one = algorithm_of(tiling)
    problem = replace(draw(one.cases().problems(template)),
                      operation=template.operation).permitting(one.permission)
    assume(keeps_all(case_of(problem, device, tiling), "hardware", masked=True))
    return ConformanceCase(make_plan(problem, device, tiling), draw(st.integers(0, 2**16)))


def cases(name: str, devices: Sequence[Device],
          pool: Sequence[Template] = (), dtype: str | None = None
          ) -> st.SearchStrategy[ConformanceCase]:
    """Cases of an algorithm: on the templates of *pool*, else on any for *devices*."""
    drawn = st.sampled_from(list(pool)) if pool else templates(name, devices, dtype)
    return drawn.flatmap(cases_on)
