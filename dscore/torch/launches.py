"""Launch of a graph's step, by which linked programs run what their tensors have been checked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from dscore.calling.call_cache import PreparedCall


class Launch(NamedTuple):
    """Launch that is all a step does with some arguments.

    *operands* are the kernel's inputs in their order: the place of one among the arguments, which
    are images, residuals and scales, a tensor that is the same each time, or None. *new* makes the
    tensor of the result. *lays*, where there is one, makes of the first argument the tensor that
    the kernel takes.
    """

    call: PreparedCall
    operands: tuple[int | Tensor | None, ...]
    new: Callable[[], Tensor]
    lays: Callable[[Tensor], Tensor] | None = None

    @property
    def constants(self) -> list[Tensor]:
        """The operands that are the same each time."""
        return [one for one in self.operands if isinstance(one, Tensor)]


@runtime_checkable
class Launching(Protocol):
    """Step of a graph that may be one launch."""

    def launch_of(self, *arguments: Any) -> Launch | None:
        """The launch that it has just made of *arguments*; None where it did anything else."""


class Bindable(ABC):
    """Step of a graph that has a faster form for eager calls."""

    @abstractmethod
    def bound(self) -> Callable[..., Tensor]:
        """That form: a function for eager calls without gradients, autocast and tracing."""
