"""The tilings of Winograd's convolution that are tried."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dscore.algorithms.columns import grid
from dscore.core.device import Device
from dscore.core.problem import ConvProblem


def columns_of(problem: ConvProblem, device: Device) -> SimpleNamespace:
    """Stand-in."""
    c = grid(outputs=[2, 4])
    return c
