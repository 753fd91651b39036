"""The reference backend: the GPU algorithms step by step in NumPy, the measure of other kernels."""

from __future__ import annotations

from dscore.backends.reference.backend import ReferenceBackend, ReferenceKernel
from dscore.core.trace import Trace

__all__ = ["ReferenceBackend", "ReferenceKernel", "Trace"]
