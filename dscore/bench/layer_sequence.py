"""Sequences of a network's convolutions, each on data of its own: what they take together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from dscore.bench.network_methods import NetworkSubject
from dscore.core.problem import ConvProblem
from dscore.torch.gains import ways

Pick = Callable[[ConvProblem], bool]


class Layers:
    """The convolutions of a network in their order, by dscore and by PyTorch, on random data."""

    def __init__(self, problems: Iterable[ConvProblem], device: torch.device,
                 backend: str = "auto") -> None:
        self._layers = [(problem, *ways(problem, device, backend)) for problem in problems]

    @property
    def kinds(self) -> list[str]:
        """The kinds of layers that there are."""
        return list(dict.fromkeys(problem.spec.kind for problem, *_ in self._layers))

    def sequence(self, name: str, by_dscore: Pick,
                 among: Pick = lambda problem: True) -> NetworkSubject:
        """The layers of *among* after one another, those of *by_dscore* computed by dscore."""
        calls = [(ours if by_dscore(problem) else theirs).compute
                 for problem, ours, theirs in self._layers if among(problem)]

        def call() -> Any:
            result = None
            for compute in calls:
                result = compute()
            return result
        return NetworkSubject(name, call, gradients=False)
