"""Quantised models in programs: torch.compile, torch.export, fake tensors, the page's example."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from dscore import Quantization  # noqa: E402
from dscore.torch import QuantizedConv2d, quantize  # noqa: E402

X = torch.randn(4, 3, 12, 10, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def quantized():
    torch.manual_seed(0)
    model = tiny_networks.with_statistics(tiny_networks.Network()).eval()
    return quantize(model, [X, X.roll(1, 0)])


def operators_in(graph):
    return sum("dscore.quantized_" in str(node.target) for node in graph.nodes)


@pytest.mark.deep
def test_a_compiled_model_is_one_graph(quantized):
    graphs = []

    def backend(graph, example):
        graphs.append(graph)
        return graph

    compiled = torch.compile(quantized, fullgraph=True, backend=backend)
    with torch.no_grad():
        assert torch.equal(compiled(X), quantized(X))
    assert [operators_in(one.graph) for one in graphs] == [6]


def test_a_model_is_exported(quantized):
    program = torch.export.export(quantized, (X,))
    assert operators_in(program.graph) == 6  # five layers and a mean over pixels
    assert torch.equal(program.module()(X), quantized(X))


@pytest.mark.parametrize("y_scale", [None, 0.5])
def test_shapes_types_and_strides_are_known_beforehand(y_scale):
    layer = QuantizedConv2d(torch.ones(6, 4, 3, 3, dtype=torch.int8), None,
                            Quantization(0.1, 0.1, y_scale), (2, 1), (1, 2))
    x = torch.ones(2, 4, 7, 9, dtype=torch.int8)
    for form in (torch.contiguous_format, torch.channels_last):
        laid_out = x.contiguous(memory_format=form)
        y = layer(laid_out)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = layer(mode.from_tensor(laid_out))
            single = layer(mode.from_tensor(x[0]))
        assert (fake.shape, fake.dtype, fake.stride()) == (y.shape, y.dtype, y.stride())
        assert single.shape == y.shape[1:]


def test_the_example_of_the_page_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "quantize.md").read_text()
    _, example, _, report, *_ = page.split("```")
    exec(example.removeprefix("python"), {})
    printed, stated = capsys.readouterr().out.splitlines(), report.strip().splitlines()
    assert len(printed) in (len(stated), len(stated) + 1)  # a note on the device that is assumed
    for line, expected in zip(printed[2:], stated[2:], strict=False):
        assert line.split()[:3] == expected.split()[:3]
