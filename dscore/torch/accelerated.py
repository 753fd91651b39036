"""Accelerated model: one that runs a folded program in eval mode, and itself otherwise.

Its class is a subclass of its own class with another forward; modules, parameters, buffers, hooks
and the keys of its state_dict stay as they are.
"""

from __future__ import annotations

import copy
import copyreg
import functools
import threading
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from dscore.core.numerics import Permission
from dscore.torch.casting import filters_cast
from dscore.torch.modules import Conv2d
from dscore.torch.program import Program, Shapes
from dscore.torch.tracing import PLAIN_FORWARD, NotTraced, evaluating

_gradients_on, _autocast_on = torch.is_grad_enabled, torch.is_autocast_enabled
_compiling = torch.compiler.is_compiling
_transforming = torch._C._are_functorch_transforms_active  # by which parameters may be batches
_NAME = "_dscore_folded"
_BUILDING = threading.RLock()


@dataclass
class Folded:
    """What a model is folded by; its `program` is made anew for a copy, and when it is loaded.

    *count*: positional arguments of a call. *left*: by name, why PyTorch computes a convolution.
    """

    count: int
    backend: str
    left: Mapping[str, str]
    shapes: Shapes = field(default_factory=dict)
    program: Program | None = None
    arithmetic: Permission = "sum"
    fault: str = ""  # reason why there is no program

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "program": None, "fault": ""}

    def build(self, model: nn.Module, arguments: tuple[Any, ...] | None = None) -> None:
        """Make the program of *model*; raises NotTraced."""
        with evaluating(model):
            self.program = Program(model, self.count, lambda name, _: self.left.get(name, ""),
                                   self.backend, self.shapes, arguments, self.arithmetic)
        self.shapes, self.fault = self.program.shapes, ""

    def program_of(self, model: nn.Module) -> Program | None:
        """The program of *model* as it is now; None where the model must run itself.

        It must where modules are in train mode, where it has changed to what has no graph, and
        where it shares this value with another model, as a replica of `nn.DataParallel` does.
        """
        program = self.program
        if program is not None:
            state = "plain" if program.model is not model else program.state()
            if state != "outdated":
                return program if state == "current" else None
        try:
            with _BUILDING:
                if self.program is program and not self.fault:  # nor has another thread made it
                    self.build(model)
        except NotTraced as failed:
            self.program, self.fault = None, str(failed)
            warnings.warn(f"dscore: {type(model).__name__} is no longer folded, and runs module by "
                          f"module: {failed}", RuntimeWarning, stacklevel=3)
        return self.program

    def fold(self) -> None:
        """Fold the parameters as they are now, if there is a program."""
        if self.program is not None:
            self.program.fold()


class Accelerated:
    """Members of an accelerated model, before those of its own class."""

    _dscore_folded: Folded
    training: bool

    def train(self, mode: bool = True) -> Any:
        """Set the mode, as PyTorch does; towards eval mode, fold the parameters as they are."""
        result = super().train(mode)  # type: ignore[misc]
        if not mode:
            self._dscore_folded.fold()
        return result

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load parameters, as PyTorch does, and fold them."""
        result = super().load_state_dict(*args, **kwargs)  # type: ignore[misc]
        self._dscore_folded.fold()
        return result

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Move or convert parameters, as PyTorch does; the program is made anew for them."""
        result = super()._apply(*args, **kwargs)  # type: ignore[misc]
        self._dscore_folded.program = None
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For pickle and copy, which do not find a class that is made at run time."""
        reduced: Any = super().__reduce_ex__(protocol)
        function, arguments, *rest = reduced
        if function is copyreg.__newobj__ and arguments[0] is type(self):  # type: ignore[attr-defined]
            function, arguments = _new, (plain_class(self), *arguments[1:])
        return function, arguments, *rest


class AcceleratedGraph(Accelerated):
    """The same of a `torch.fx.GraphModule`, each of which has a class of its own for its forward.

    PyTorch finds that class by its name, and writes the forward to it: it is to see the plain one.
    """

    def __new__(cls, *arguments: Any) -> Any:
        """A graph module that is not accelerated, which `__deepcopy__` of PyTorch's fills."""
        return _plain_base(cls).__new__(_plain_base(cls))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        result: Any = super().__deepcopy__(memo)  # type: ignore[misc]
        return _accelerated_by(copy.deepcopy(self._dscore_folded, memo), result)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As PyTorch saves a graph module, whose forward it makes anew for that."""
        function, arguments, *rest = self._plain().__reduce_ex__(protocol)
        return _loaded, (self._dscore_folded, function, arguments), *rest

    def recompile(self) -> Any:
        """Make the forward of a changed graph, as PyTorch does; the program follows it."""
        code = self._plain().recompile()
        self._dscore_folded.program, self._dscore_folded.fault = None, ""
        become_accelerated(self)
        return code

    def _plain(self) -> Any:
        """This module as one of its plain class, with the same contents."""
        plain = object.__new__(plain_class(self))
        object.__setattr__(plain, "__dict__", vars(self))
        return plain


def _loaded(folded: Folded, function: Any, arguments: Any) -> Any:
    """An accelerated graph module of what PyTorch saves of it."""
    return _accelerated_by(folded, function(*arguments))


def _accelerated_by(folded: Folded, model: Any) -> Any:
    vars(model)[_NAME] = folded
    become_accelerated(model)
    return model


# Accelerated models by their identity, the one constant of a model that every compiler takes.
_MODELS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _make_program(identity: int) -> None:
    """Make a model's program while a compiler traces the model, of whose graph that is no part."""
    model = _MODELS.get(identity)
    if model is not None:  # it is for a replica, which runs as it is
        model._dscore_folded.program_of(model)


# As note_traced in dscore.torch.remainder.
_make_program._dynamo_marked_constant = True  # type: ignore[attr-defined]


def become_accelerated(model: Any) -> None:
    """Give a model the accelerated class of its own."""
    plain = plain_class(model)
    # A graph module's class is of that module alone, and its forward may be another one by now.
    model.__class__ = (_subclass(AcceleratedGraph, plain) if issubclass(plain, fx.GraphModule)
                       else accelerated_class(plain))
    _MODELS[id(model)] = model


def plain_class(model: Any) -> Any:
    """The class of a model before it was accelerated."""
    kind = type(model)
    return _plain_base(kind) if issubclass(kind, Accelerated) else kind


def _plain_base(kind: Any) -> Any:
    """The class that an accelerated one was made of."""
    return kind.__bases__[1]


def _new(base: Any, *arguments: Any) -> Any:
    """An object of the accelerated class of *base*, without contents yet."""
    model = base.__new__(accelerated_class(base), *arguments)
    _MODELS[id(model)] = model
    return model


@functools.cache
def accelerated_class(base: Any) -> Any:
    """The subclass of *base* whose objects are accelerated models, of the same name."""
    return _subclass(Accelerated, base)


def _filters(model: Any) -> list[Any]:
    """The filters that a model's own forward convolves by, as dscore's modules have them."""
    return [one._parameters.get("weight") for one in model.modules() if isinstance(one, Conv2d)]


def _subclass(members: Any, base: Any) -> Any:
    """A new class of an accelerated class's *members* and *base*, with the name of *base*."""
    plain = base.forward

    @functools.wraps(plain)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.training or kwargs or _gradients_on() or _autocast_on():
            if not (_autocast_on() or _autocast_on("cpu")):
                return plain(self, *args, **kwargs)
            with filters_cast(_filters(self)):
                return plain(self, *args, **kwargs)
        folded = self._dscore_folded
        if len(args) != folded.count:
            return plain(self, *args)
        if _compiling():
            _make_program(id(self))
            program = folded.program
            return plain(self, *args) if program is None else program.traceable(*args)
        program = None if _transforming() else folded.program_of(self)
        return plain(self, *args) if program is None else program.forward(*args)

    return type(base.__name__, (members, base), {
        "__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__,
        "forward": forward, PLAIN_FORWARD: plain})
