"""torchvision's networks on the host, where it is installed: what is folded, and the results."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed, or not for this PyTorch",
                    exc_type=(ImportError, RuntimeError))

from accelerated_models import exact  # noqa: E402

import dscore.torch  # noqa: E402
from dscore.bench.network_methods import relative_error, with_statistics  # noqa: E402
from dscore.torch.models import NETWORKS, factory_of  # noqa: E402

# Of each network: convolutions, and those with a scale and with a residual.
FOLDED = {"mobilenet_v2": (52, 0, 10), "mobilenet_v3_large": (62, 8, 10),
          "efficientnet_b0": (81, 16, 9), "mnasnet1_0": (52, 0, 10),
          "shufflenet_v2_x1_0": (56, 0, 0)}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_folded_as_a_whole(name):
    torch.manual_seed(0)
    x = torch.randn(1, 3, 64, 64)
    model = with_statistics(factory_of(name)(), (x.expand(4, -1, -1, -1),))
    keys = list(model.state_dict())
    report = dscore.torch.accelerate(model, x)
    assert (report.folded, list(model.state_dict())) == (("",), keys)
    assert [layer.kind for layer in report.left] == ["dense"]
    folded = [" ".join(layer.folded) for layer in report.layers]
    assert (len(folded), sum("scale" in one for one in folded),
            sum("residual" in one for one in folded)) == FOLDED[name]
    nodes = model._dscore_folded.program.graph.nodes
    assert not any("BatchNorm" in type(model.get_submodule(node.target)).__name__
                   for node in nodes if node.op == "call_module")
    with torch.no_grad():
        assert relative_error(model(x), exact(model, x)) <= 1e-4


@pytest.mark.parametrize(("name", "counts"), [("mobilenet_v2", (52, 1, 0)),
                                              ("efficientnet_b0", (49, 1, 0))])
def test_networks_are_quantised(name, counts):
    """All layers but those of squeeze-and-excitation, and the first step alone."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 64, 64)
    report = dscore.torch.quantize(with_statistics(factory_of(name)(), (x,)).eval(), [x]).report
    assert (len(report.quantized), report.quantize_steps, report.dequantize_steps) == counts
    assert {layer.kind for layer in report.kept} <= {"dense", "pointwise"}
    assert all(0 < layer.error < 0.05 for layer in report.quantized)
