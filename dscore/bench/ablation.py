"""Ablation, as in Table 9 of the first paper: depthwise layers by dscore, pointwise ones, or both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dscore.bench import network_methods as methods
from dscore.bench.layer_sequence import Layers
from dscore.bench.network import Begin, NetworkComparison
from dscore.bench.network_methods import Setup
from dscore.bench.network_rows import Quantity
from dscore.bench.network_workplace import Workplace
from dscore.bench.summary import OURS
from dscore.calling.prepare import prepare
from dscore.core.token import parse_problem
from dscore.torch.accelerate import scan

# The kinds of layers that dscore computes in each variant; PyTorch's default computes the others.
VARIANTS: dict[str, tuple[str, ...]] = {
    "baseline": (), "only depthwise": ("depthwise",), "only pointwise": ("pointwise",),
    "both": ("depthwise", "pointwise")}


@dataclass(frozen=True)
class AblationRow:
    """Device times of a network's variant: of its depthwise and pointwise layers alone, one after
    the other without what is between them, and of the whole network in eval mode.
    """

    network: str
    batch: int
    variant: str
    layers: Quantity
    whole: Quantity

    def over(self, baseline: AblationRow) -> tuple[float, float]:
        """How many times as fast as the baseline the layers are, and the whole network."""
        return (baseline.layers.median / self.layers.median,
                baseline.whole.median / self.whole.median)


def ablation(comparison: NetworkComparison, workplace: Workplace,
             begin: Begin = lambda what: None) -> list[AblationRow]:
    """The rows of each network and batch, in the order of VARIANTS."""
    rows = []
    for network in comparison.networks:
        for batch in comparison.batches:
            begin(f"{network} ablation batch {batch}")
            setup = workplace.setup(network, (batch, *comparison.shape[1:]))
            times = zip(VARIANTS, _layer_times(setup, workplace),
                        _network_times(setup, workplace), strict=True)
            rows += [AblationRow(network, batch, *variant) for variant in times]
            workplace.runner.release()
    return rows


def _layer_times(setup: Setup, workplace: Workplace) -> list[Quantity]:
    report = scan(setup.model, setup.arguments, fold=False, backend=setup.backend, measure=False)
    problems = [parse_problem(layer.problem) for layer in report.layers
                if layer.problem and layer.kind in VARIANTS["both"]]
    prepare(problems, backend=setup.backend)
    layers = Layers(problems, workplace.device, setup.backend)
    return workplace.times([layers.sequence(name, _among(kinds))
                            for name, kinds in VARIANTS.items()])


def _among(kinds: Iterable[str]) -> Any:
    return lambda problem: problem.spec.kind in kinds


def _network_times(setup: Setup, workplace: Workplace) -> list[Quantity]:
    subjects = []
    for kinds in VARIANTS.values():
        own = Setup(setup.model, setup.arguments, setup.backend, setup.measure, kinds)
        subjects.append(methods.inference(own, OURS if kinds else "default")[0])
    return workplace.times(subjects)
