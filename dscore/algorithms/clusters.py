"""Compute units that clusters of blocks fill."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.columns import Count
from dscore.core.device import Device


def filled_units(device: Device, t: Any) -> Count:
    """CUs that hold blocks of a tiling, or of columns of many: of a cluster's, which lie together,
    not always all.

    >>> from types import SimpleNamespace
    >>> from dscore.core import catalog
    >>> filled_units(catalog.device("h200"), SimpleNamespace(cluster=np.array([1, 2, 4]))).tolist()
    [132, 132, 120]
    """
    cluster = np.asarray(getattr(t, "cluster", 1))
    blocks, index = np.unique(cluster, return_inverse=True)
    units: Count = np.array([device.cluster_units(int(count)) for count in blocks])
    return units[index].reshape(cluster.shape)
