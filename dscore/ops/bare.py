"""Operations of a layer's images and filters alone: what else it has is refused by name."""

from __future__ import annotations

from dscore.core.errors import SpecError
from dscore.core.problem import ConvProblem
from dscore.core.spec import ConvSpec


def require_bare(problem: ConvProblem, of: str, *further: str) -> ConvSpec:
    """The layer of *problem*, whose operation is *of* something alone; *further* names what it has
    that this operation refuses as well.

    Raises SpecError where the layer has a bias, an activation, a residual, a scale, or a filter of
    another form.

    >>> from dscore.core.token import parse_problem
    >>> require_bare(parse_problem("n1c8h9w9_o8k3p1g8"), "a convolution").kernel
    (3, 3)
    """
    spec = problem.spec
    parts = {"a bias": spec.bias, f"the activation {spec.activation}": spec.activation,
             **dict.fromkeys(further, True),
             f"an x of {spec.in_dtype}": spec.in_dtype,
             "a residual": spec.residual, "a scale": spec.scaled,
             f"a filter of the form {spec.filter}": spec.filter != "plain"}
    extra = [name for name, there in parts.items() if there]
    if extra:
        name = problem.operation.replace("_", " ")
        raise SpecError(f"the {name} {'are' if name.endswith('s') else 'is'} of {of} alone, and "
                        f"this layer has {', '.join(extra)}; leave that out")
    return spec
