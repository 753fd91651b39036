"""Problems as one token, for the command line, logs, caches and kernel symbols.

``n1c64h14w14_o384k1`` is a batch of 1, 64 channels of 14x14, 384 output channels, kernel 1x1.
After the kernel may stand ``s`` stride, ``p`` padding, ``d`` dilation, ``g`` groups, then further
parts: a dtype, ``infloat16`` or another float type for an int8 layer that quantises its x,
``outfloat32`` or ``outfloat16`` for a float result of int8, ``nhwc``, ``bias``, an activation,
``scaled`` for an input that is multiplied by image and channel, ``table`` for an int8 result that
is looked up in a table, ``residual`` or ``residualafter`` for an array added before or after the
activation, ``winograd`` where Winograd's algorithm is permitted, or ``winograd4`` where the filter
was transformed for it beforehand, as in ``n1c32h112w112_o32k3s2p0x1x0x1g32_bias_relu6``. An
operation other than a convolution stands in front, as in ``input_gradient_n1c64h14w14_o384k1``. A
token is a C identifier.
"""

from __future__ import annotations

import re
from typing import Any

from dscore.core.errors import SpecError, shown
from dscore.core.numerics import FILTER_FORMS, FLOAT_RESULTS, FLOATS, layer_types
from dscore.core.problem import OPERATION, ConvProblem
from dscore.core.spec import ACTIVATIONS, LAYOUTS, ConvSpec
from dscore.core.winograd import tile_of

# Far more than any problem needs, and fewer digits than Python reads in one number.
MOST_CHARACTERS = 256
_BEGIN = re.compile(rf"(?:({OPERATION})_)?(?=n\d+c\d+h\d+w\d+)", re.ASCII)
_INPUT = re.compile(r"n(\d+)c(\d+)h(\d+)w(\d+)", re.ASCII)
_LAYER = re.compile(r"o(\d+)k(\d+(?:x\d+)?)(?:s(\d+(?:x\d+)?))?"
                    r"(?:p(same|\d+(?:x\d+){0,3}))?(?:d(\d+(?:x\d+)?))?(?:g(\d+))?", re.ASCII)
_FORM = ("[<operation>_]n<N>c<C>h<H>w<W>_o<O>k<K>[s<S>][p<P>][d<D>][g<G>]"
         "[_float16][_nhwc][_bias][_relu]")


def _numbers(text: str | None, default: int) -> Any:
    if text is None:
        return default
    values = tuple(int(part) for part in text.split("x"))
    return values[0] if len(values) == 1 else values


def require_text(problem: object) -> str:
    """Return *problem*, the name or the token of one; SpecError where it is no text or too long."""
    if not isinstance(problem, str):
        raise SpecError("a problem is a text, as P13, mobilenet_v2/7 or n1c64h14w14_o384k1; got "
                        f"{shown(problem)}")
    if len(problem) > MOST_CHARACTERS:
        raise SpecError(f"a problem's text has at most {MOST_CHARACTERS} characters; "
                        f"{shown(problem)} has {len(problem):,}")
    return problem


def looks_like_token(text: str) -> bool:
    """Whether *text* begins as a problem token does, so that an error about it is wanted."""
    return _BEGIN.match(text) is not None


def parse_problem(token: str) -> ConvProblem:
    """The problem that *token* states; SpecError names the part that does not fit.

    Whether there is such an operation is for those to say who know it (dscore.ops).

    >>> parse_problem("n1c320h7w7_o1280k1").spec.out_channels
    1280
    """
    require_text(token)
    begin = _BEGIN.match(token)
    first, *parts = token[begin.end() if begin else 0:].split("_")
    image = _INPUT.fullmatch(first)
    layer = _LAYER.fullmatch(parts[0]) if parts else None
    if image is None or layer is None:
        bad = first if image is None else (parts[0] if parts else "nothing after the input")
        raise SpecError(f"not a problem: {token!r} ({bad!r} does not fit); the form is {_FORM}, "
                        "for example n1c64h14w14_o384k1 or n1c32h112w112_o32k3s2p1g32")
    batch, channels, height, width = (int(group) for group in image.groups())
    out, kernel, stride, padding, dilation, groups = layer.groups()
    spec = ConvSpec.make(
        channels, int(out), _numbers(kernel, 1), stride=_numbers(stride, 1),
        padding="same" if padding == "same" else _numbers(padding, 0),
        dilation=_numbers(dilation, 1), groups=_numbers(groups, 1),
        **_options(parts[1:], token))
    operation = begin[1] if begin else None
    return ConvProblem(spec, batch, height, width, operation or "conv")


def _options(parts: list[str], token: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    known = _known_options()
    for part in parts:
        field, value = known.get(part, ("", None))
        if not field or field in options:
            raise SpecError(f"not a problem: {token!r} ({part!r} is unknown or comes twice); "
                            f"a part is one of {', '.join(known)}")
        options[field] = value
    return options


def _known_options() -> dict[str, tuple[str, Any]]:
    """The field of ConvSpec that a part stands for, and its value."""
    return {**{name: ("dtype", name) for name in layer_types()},
            **{f"in{name}": ("in_dtype", name) for name in FLOATS},
            **{f"out{name}": ("out_dtype", name) for name in FLOAT_RESULTS},
            **{name: ("layout", name) for name in LAYOUTS}, "bias": ("bias", True),
            **{name: ("activation", name) for name in ACTIVATIONS}, "scaled": ("scaled", True),
            "table": ("table", True), "residual": ("residual", "before"),
            "residualafter": ("residual", "after"), "winograd": ("arithmetic", "winograd"),
            **{name: ("filter", name) for name in FILTER_FORMS if tile_of(name)}}


def form_of(name: str) -> tuple[str, dict[str, Any]]:
    """A layer's name without types and a layout at its end, and the fields of ConvSpec these are.

    >>> form_of("mobilenet_v2/7_float16_nhwc")
    ('mobilenet_v2/7', {'layout': 'nhwc', 'dtype': 'float16'})
    """
    fields: dict[str, Any] = {}
    known = {part: (field, value) for part, (field, value) in _known_options().items()
             if field in ("dtype", "in_dtype", "out_dtype", "layout")}
    while True:
        base, _, last = name.rpartition("_")
        field, value = known.get(last.lower(), ("", None))
        if not base or not field or field in fields:
            return name, fields
        name, fields[field] = base, value


def _joined(letter: str, values: tuple[int, ...], default: tuple[int, ...]) -> str:
    if values == default:
        return ""
    short = values[:1] if len(set(values)) == 1 else values
    return letter + "x".join(str(value) for value in short)


def problem_token(problem: ConvProblem) -> str:
    """The token of *problem*, with padding resolved; `parse_problem` gives the problem back.

    >>> problem_token(parse_problem("n1c8h5w5_o8k3s2psameg8"))
    'n1c8h5w5_o8k3s2p1g8'
    """
    spec = problem.spec
    text = f"{problem.prefix}n{problem.batch}c{spec.in_channels}h{problem.height}w{problem.width}_o"
    text += f"{spec.out_channels}" + _joined("k", spec.kernel, ())
    text += _joined("s", spec.stride, (1, 1)) + _joined("p", problem.padding, (0, 0, 0, 0))
    text += _joined("d", spec.dilation, (1, 1)) + _joined("g", (spec.groups,), (1,))
    parts = [text]
    parts += [spec.dtype] if spec.dtype != "float32" else []
    parts += [f"in{spec.in_dtype}"] if spec.in_dtype else []
    parts += [f"out{spec.out_dtype}"] if spec.out_dtype else []
    parts += [spec.layout] if spec.layout != "nchw" else []
    parts += ["bias"] if spec.bias else []
    parts += [spec.activation] if spec.activation else []
    parts += ["scaled"] if spec.scaled else []
    parts += ["table"] if spec.table else []
    parts += ["residual" + "after" * (spec.residual == "after")] if spec.residual else []
    if tile_of(spec.filter):
        parts.append(spec.filter)  # which permits the arithmetic
    elif spec.arithmetic != "sum":
        parts.append(spec.arithmetic)
    return "_".join(parts)
