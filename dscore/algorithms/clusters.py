"""Clusters of blocks: the compute units that they fill, and LDS for sums that they share."""

from __future__ import annotations

from typing import Any

import numpy as np

from dscore.algorithms.base import BARRIER_BYTES, VECTOR_BYTES
from dscore.algorithms.columns import Count, ceil_div
from dscore.core.device import Device
from dscore.core.numerics import WORD_BYTES


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


def shared_sums_bytes(cluster: Count, sums: Count) -> Count:
    """LDS to which the blocks of a *cluster* send a share each of so many *sums*
    (hip_src/support/shared_sums.hpp); none of blocks by themselves.

    >>> int(shared_sums_bytes(8, 9 * 32)), int(shared_sums_bytes(1, 9 * 32))
    (1168, 0)
    """
    sent = WORD_BYTES * cluster * ceil_div(sums, cluster)
    whole = ceil_div(sent, VECTOR_BYTES) * VECTOR_BYTES
    return np.where(np.asarray(cluster) > 1, whole + BARRIER_BYTES, 0)
