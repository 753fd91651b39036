"""Device of a comparison of networks: its clock, models on it, device times and wall times."""

from __future__ import annotations

import copy
import platform
from collections.abc import Sequence

import torch

from dscore._version import __version__
from dscore.bench.network_methods import NetworkSubject, Setup, undropped, with_statistics
from dscore.bench.network_rows import Quantity
from dscore.core.backend import choose_backend
from dscore.core.errors import require_one_of
from dscore.core.numerics import PERMISSIONS, Permission, layer_types
from dscore.core.spec import LAYOUTS, Layout
from dscore.measuring.runner import Runner, runner_of
from dscore.measuring.timing import Effort, Timing, device_times
from dscore.torch.models import factory_of, inputs_of

_DEVICE_EFFORT = Effort(turns=3, replay_seconds=5e-3, total_seconds=50e-3, most_replays=8,
                        fewest_replays=3, probe_launches=2)
_HOST_EFFORT = Effort(turns=2, replay_seconds=0.0, total_seconds=5e-2, most_replays=3,
                      fewest_replays=1, probe_launches=1)
# Of a sample of wall time: calls between two waits, and how long they last at least.
_MOST_CALLS, _WALL_SECONDS, _WALL_SAMPLES = 100, 50e-3, 3


class Workplace:
    """The device of a comparison of networks, its clock, and models on it."""

    def __init__(self, backend: str, seed: int, arithmetic: Permission = "sum",
                 dtype: str = "float32", layout: Layout = "nchw") -> None:
        self.arithmetic = require_one_of(arithmetic, "arithmetic", PERMISSIONS)
        # Of int8: that of the float parts, and of the peers.
        self.integers = require_one_of(dtype, "dtype", layer_types()) == "int8"
        self.dtype: torch.dtype = torch.float16 if self.integers else getattr(torch, dtype)
        self.last = require_one_of(layout, "layout", LAYOUTS) == "nhwc"
        chosen = choose_backend(backend)
        self.backend, self.seed = backend, seed
        self.runner: Runner = runner_of(chosen, chosen.device(), True)
        self.on_host = self.runner.on_host
        # A host's backend is named by what it is: PyTorch's convolution would serve for "auto".
        self.name = chosen.name if self.on_host else backend
        self.device = torch.device("cpu" if self.on_host else "cuda")
        self.effort = _HOST_EFFORT if self.on_host else _DEVICE_EFFORT
        self.title = f"{self.runner.title} ({chosen.device().name})"
        self.versions = (f"dscore {__version__}, torch {torch.__version__}, "
                         f"python {platform.python_version()}, {self.runner.versions}")

    def setup(self, network: str, shape: tuple[int, ...]) -> Setup:
        """A network by its name on the device, with statistics of its own, and an input."""
        torch.manual_seed(self.seed)
        model = undropped(copy.deepcopy(factory_of(network)())).to(self.device)
        arguments = inputs_of((shape,), self.device, self.seed)
        return Setup(with_statistics(model, arguments), arguments, self.name,
                     False if self.on_host else None, arithmetic=self.arithmetic,
                     dtype=self.dtype, last=self.last, integers=self.integers)

    def times(self, subjects: Sequence[NetworkSubject]) -> list[Quantity]:
        """Device time of subjects in turns; no other process measures meanwhile."""
        with self.runner.exclusive():
            timings = device_times(self.runner.clock, subjects, 1, self.effort)
        return list(map(Quantity.of, timings))

    def walls(self, subjects: Sequence[NetworkSubject]) -> list[Quantity]:
        """Wall time of a call of each subject, in turns, with the wait for the device."""
        with self.runner.exclusive():
            return self._walls(subjects)

    def _walls(self, subjects: Sequence[NetworkSubject]) -> list[Quantity]:
        counts = [self._calls(subject) for subject in subjects]
        samples: list[list[float]] = [[] for _ in subjects]
        for _ in range(self.effort.turns * _WALL_SAMPLES):
            for subject, count, each in zip(subjects, counts, samples, strict=True):
                each.append(self._wall(subject, count) / count)
        return [Quantity.of(Timing(tuple(each), count, 1, "eager"))
                for each, count in zip(samples, counts, strict=True)]

    def _calls(self, subject: NetworkSubject) -> int:
        self._wall(subject, 2)
        return int(max(1, min(_MOST_CALLS, _WALL_SECONDS / max(self._wall(subject, 1), 1e-9))))

    def _wall(self, subject: NetworkSubject, count: int) -> float:
        clock = self.runner.clock
        with subject.settings():
            clock.synchronize()
            began = clock.now()
            for _ in range(count):
                subject.launch(0, 0)
            clock.synchronize()
            return clock.now() - began
