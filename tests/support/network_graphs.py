"""A GPU of a script that runs the graphs of networks, for tests of tuning in them."""

from __future__ import annotations

from typing import Any

from tuning_backends import scripted_seconds

from dscore.bench.network_tuning import NetworkTimes
from dscore.calling import choice
from dscore.measuring.kernel_ends import KernelTimes

SCRIPTED = "tuning_backends:Scripted"


class Graph:
    """Stands for a GPU that runs a network's graph: a kernel for each plan that its calls asked
    for, twice of the first, which takes the time of the script.
    """

    def __init__(self) -> None:
        self.rounds: list[dict[str, str]] = []
        self.stop_after: int | None = None  # rounds, as by Ctrl-C

    def __call__(self, subject: Any) -> NetworkTimes:
        if len(self.rounds) == self.stop_after:
            self.stop_after = None
            raise KeyboardInterrupt
        assignment = choice.ASSIGNMENTS[-1]
        plans = [assignment.plans.get(token, plan) for token, plan in assignment.defaults.items()]
        self.rounds.append({plan.token: plan.tiling.name for plan in plans})
        kernels = [KernelTimes(f"void run<(anonymous namespace)::{plan.name}>(args)",
                               (scripted_seconds(plan.tiling.name),) * 3)
                   for plan in [*plans, plans[0]]]
        return NetworkTimes((sum(kernel.samples[0] for kernel in kernels),) * 3,
                            (*kernels, KernelTimes("nvjet_of_pytorch", (1e-6,) * 3)))
