"""Networks that hypothesis draws: convolutions, norms and activations, joined as people do."""

import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

ACTIVATIONS = {
    "relu": nn.ReLU, "relu6": nn.ReLU6, "silu": nn.SiLU, "hardswish": nn.Hardswish,
    "hardsigmoid": nn.Hardsigmoid, "leaky": nn.LeakyReLU, "gelu": lambda inplace: nn.GELU(),
    "tanh": lambda inplace: nn.Tanh(), "sigmoid": lambda inplace: nn.Sigmoid(),
    "none": lambda inplace: nn.Identity()}
NORMS = {
    "batch": nn.BatchNorm2d, "plain batch": lambda c: nn.BatchNorm2d(c, affine=False, eps=1e-3),
    "batch twice": lambda c: nn.Sequential(nn.BatchNorm2d(c), nn.BatchNorm2d(c)),
    "group": lambda c: nn.GroupNorm(1, c), "none": lambda c: nn.Identity()}
# Of a value and what a block makes of it.
SUMS = {
    "x + f": lambda x, y: x + y, "f + x": lambda x, y: y + x, "f += x": lambda x, y: y.add_(x),
    "x + f / 2": lambda x, y: torch.add(x, y, alpha=0.5), "(x + f) / 2": lambda x, y: (x + y) * 0.5,
    "x - f": lambda x, y: x - y, "f - x": lambda x, y: y - x, "x + f + f": lambda x, y: x + y + y,
    "x * f": lambda x, y: x * y, "relu": lambda x, y: functional.relu(x + y),
    "relu6, in place": lambda x, y: functional.relu6(y + x, inplace=True)}
MEANS = {
    "mean": lambda x: x.mean((2, 3), keepdim=True),
    "pool": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "rows, then columns": lambda x: x.mean(3, keepdim=True).mean(2, keepdim=True),
    "greatest": lambda x: x.amax((2, 3), keepdim=True)}
GATES = {"sigmoid": torch.sigmoid, "hardsigmoid": functional.hardsigmoid,
         "relu6 / 6": lambda x: functional.relu6(x + 3) / 6, "none": lambda x: x}
SCALED = {
    "x * s": lambda x, s: x * s, "s * x": lambda x, s: s * x, "x + x * s": lambda x, s: x + x * s,
    "x * s, as large": lambda x, s: x * s.expand_as(x), "x * s + s": lambda x, s: x * s + s}
HEADS = {
    "none": lambda y, layer: y, "mean": lambda y, layer: layer(y.mean((2, 3))),
    "pool": lambda y, layer: layer(torch.flatten(functional.adaptive_avg_pool2d(y, 1), 1)),
    "several": lambda y, layer: {"y": y, "z": [torch.sigmoid(y), y.mean()]}}
RESIZED = {
    "greatest of 2x2": lambda: nn.MaxPool2d(2, ceil_mode=True),
    "mean of 3x3": lambda: nn.AvgPool2d(3, 1, 1), "padded": lambda: nn.ZeroPad2d((1, 0, 2, 1)),
    "twice as large": lambda: nn.Upsample(scale_factor=2)}


class Named(nn.Module):
    """A part whose text names what it does, for a failing example to tell."""

    def __init__(self, *names):
        super().__init__()
        self.names = names

    def extra_repr(self):
        return ", ".join(self.names)


class Residual(Named):
    """A block beside which its input goes on."""

    def __init__(self, block, how):
        super().__init__(how)
        self.block = block

    def forward(self, x):
        return SUMS[self.names[0]](x, self.block(x))


class Gate(Named):
    """Squeeze-and-excitation, by convolutions."""

    def __init__(self, channels, between, activation, *names):
        super().__init__(*names)
        self.down, self.up = nn.Conv2d(channels, between, 1), nn.Conv2d(between, channels, 1)
        self.activation = activation

    def forward(self, x):
        mean, gate, scaled = self.names
        scale = GATES[gate](self.up(self.activation(self.down(MEANS[mean](x)))))
        return SCALED[scaled](x, scale)


class Branches(Named):
    """Blocks beside one another, whose results are added or joined; a block of half the channels,
    which are then shuffled; a block behind itself."""

    def __init__(self, blocks, how):
        super().__init__(how)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        if self.names[0] == "halves":
            first, second = x.chunk(2, dim=1)
            joined = torch.cat((first, self.blocks[0](second)), 1)
            n, c, h, w = joined.shape
            return joined.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        if self.names[0] == "same block":
            return self.blocks[0](self.blocks[0](x))
        results = [block(x) for block in self.blocks]
        return torch.cat(results, 1) if self.names[0] == "joined" else sum(results)


class Network(Named):
    """A body, and a head."""

    def __init__(self, body, channels, head):
        super().__init__(head)
        self.body, self.layer = body, nn.Linear(channels, 5)

    def forward(self, x):
        return HEADS[self.names[0]](self.body(x), self.layer)


def _one_of(table):
    return st.sampled_from(sorted(table))


@st.composite
def _activations(draw):
    return ACTIVATIONS[draw(_one_of(ACTIVATIONS))](inplace=draw(st.booleans()))


@st.composite
def _layers(draw, channels, kept):
    """A convolution with what people put around it, and its channels; *kept*: of its input's shape.
    """
    kernel = draw(st.sampled_from([1, 1, 3, 3, 5, 2, (1, 4)]))
    kind = draw(st.sampled_from(["depthwise", "pointwise", "dense"]))
    kernel = 1 if kind == "pointwise" else kernel
    outputs = channels if kept else draw(st.sampled_from([3, 4, 8, 12]))
    if kind == "depthwise":
        outputs = channels * (1 if kept else draw(st.integers(1, 2)))
    stride = 1 if kept else draw(st.sampled_from([1, 1, 2, (1, 2)]))
    padding = "same" if stride == 1 and (kept or draw(st.booleans())) else draw(st.integers(0, 2))
    conv = nn.Conv2d(channels, outputs, kernel, stride, padding,
                     1 if padding == "same" else draw(st.sampled_from([1, 1, 2])),
                     channels if kind == "depthwise" else 1, bias=draw(st.booleans()),
                     padding_mode=draw(st.sampled_from(["zeros"] * 5 + ["replicate"])))
    parts = [conv, NORMS[draw(_one_of(NORMS))](outputs), draw(_activations())]
    if not draw(st.integers(0, 4)):
        parts.insert(0, draw(st.one_of(_activations(), st.just(nn.BatchNorm2d(channels)))))
    return nn.Sequential(*parts), outputs


@st.composite
def _blocks(draw, channels, kept=False, depth=2):
    """Some parts, one behind the other, and the channels of the last."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        part, channels = draw(_parts(channels, kept, depth))
        parts.append(part)
    return nn.Sequential(*parts), channels


@st.composite
def _parts(draw, channels, kept, depth):
    kinds = ["layer", "layer", "gate"] + ["residual", "branches"] * (depth > 0)
    kind = draw(st.sampled_from(kinds + ["resized"] * (not kept)))
    if kind == "gate":
        names = (draw(_one_of(table)) for table in (MEANS, GATES, SCALED))
        return Gate(channels, draw(st.integers(1, 5)), draw(_activations()), *names), channels
    if kind == "residual":
        return Residual(draw(_blocks(channels, True, depth - 1))[0], draw(_one_of(SUMS))), channels
    if kind == "branches":
        how = draw(st.sampled_from(["halves", "same block", "joined", "added"]))
        split = how == "halves" and channels % 2 == 0
        how = "added" if how == "halves" and not split else how
        each = channels // 2 if split else channels
        count = draw(st.integers(1, 2)) if how in ("joined", "added") else 1
        blocks = [draw(_blocks(each, True, depth - 1))[0] for _ in range(count)]
        return Branches(blocks, how), channels * (len(blocks) if how == "joined" else 1)
    if kind == "resized":
        return RESIZED[draw(_one_of(RESIZED))](), channels
    return draw(_layers(channels, kept))


@st.composite
def networks(draw):
    """A network, and the channels of its images."""
    inputs = draw(st.sampled_from([3, 3, 4, 8]))
    body, channels = draw(_blocks(inputs))
    return Network(body, channels, draw(_one_of(HEADS))), inputs
