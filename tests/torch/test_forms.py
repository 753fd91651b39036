"""Models in 16 bits, with the channels last, and under autocast: accelerated, trained, compared."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from torch import nn  # noqa: E402

import dscore.torch as dt  # noqa: E402
from dscore.bench import network_methods  # noqa: E402
from dscore.torch.survey import Survey  # noqa: E402

FORMS = [torch.contiguous_format, torch.channels_last]
NAMES = {torch.float32: "", torch.float16: "_float16", torch.bfloat16: "_bfloat16"}


def model_and_example(dtype, form):
    torch.manual_seed(0)
    model = tiny_networks.with_statistics(network_methods.undropped(tiny_networks.mobile())).eval()
    return (model.to(dtype=dtype, memory_format=form),
            torch.randn(2, 3, 16, 16).to(dtype=dtype, memory_format=form))


@pytest.mark.parametrize("form", FORMS, ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_accelerated_model_computes_as_it_did(dtype, form):
    model, x = model_and_example(dtype, form)
    exact, x64 = copy.deepcopy(model).double(), x.double()
    report = dt.accelerate(model, x, backend="reference")
    assert report.replaced
    end = f"{NAMES[dtype]}{'_nhwc' if form is torch.channels_last else ''}"
    assert all(end in layer.problem for layer in report.replaced)
    assert report.folded == ("",)
    with torch.no_grad():
        y, wanted = model(x), exact(x64)
    assert y.dtype is dtype
    assert network_methods.relative_error(y, wanted) < 8 * torch.finfo(dtype).eps
    # Where gradients are recorded, its modules run one by one.
    assert network_methods.relative_error(model(x).detach(), wanted) < 16 * torch.finfo(dtype).eps
    dt.restore(model)


def test_a_survey_under_autocast_is_of_its_type():
    model, x = model_and_example(torch.float32, torch.channels_last)
    setting = dt.setting.Setting("reference")
    with torch.autocast("cpu", torch.bfloat16):
        survey = Survey(model, (x,), setting.plan_of, fold=False, backend="reference")
    kinds = {(problem.spec.dtype, problem.spec.layout, problem.operation)
             for problem in survey.training_problems()}
    assert kinds == {("bfloat16", "nhwc", operation)
                     for operation in ("conv", "input_gradient", "weight_gradient")}


@pytest.mark.parametrize("form", FORMS, ids=["nchw", "nhwc"])
def test_a_step_of_training_under_autocast(form):
    layer = nn.Sequential(dt.DepthwiseConv2d(8, 3, padding=1, backend="reference"), nn.ReLU(),
                          dt.PointwiseConv2d(8, 6, backend="reference"))
    theirs = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 6, 1))
    theirs.load_state_dict(layer.state_dict())
    x, losses = torch.randn(2, 8, 5, 6).to(memory_format=form), []
    for model in (layer, theirs):
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        losses.append([])
        for _ in range(4):  # filters change in place, and the next result is of the new ones
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                y = model(x)
            assert y.dtype is torch.bfloat16
            loss = y.float().square().mean()
            loss.backward()
            optimizer.step()
            losses[-1].append(float(loss))
        assert all(one.grad.dtype is torch.float32 for one in model.parameters())
    ours, others = losses
    assert ours[-1] < ours[0]
    assert ours == pytest.approx(others, rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_networks_are_compared_in_16_bits_and_with_channels_last(dtype):
    model, x = model_and_example(torch.float32, torch.contiguous_format)
    setup = network_methods.Setup(model, (x,), "reference", False, dtype=dtype, last=True)
    reference = network_methods.exact(setup)
    for way in ("dscore", "default", "channels_last"):
        subject, report = network_methods.inference(setup, way)
        with subject.settings():
            subject.launch(0, 0)
        assert subject.result.dtype is dtype
        assert network_methods.relative_error(subject.result, reference) < 0.2
        assert report is None or all("_nhwc" in one.problem for one in report.replaced)
    loss = network_methods.exact_loss(setup)
    for way in ("dscore", "default"):
        subject, _ = network_methods.training(setup, way)
        with subject.settings():
            subject.launch(0, 0)
        assert network_methods.relative_error(subject.result, loss) < 0.05


def test_calls_under_autocast_are_remembered_by_the_filter_that_is_cast(monkeypatch):
    from dscore.torch import functional

    keys = []
    monkeypatch.setattr(functional, "_autocast_on",
                        lambda device="cpu": torch.is_autocast_enabled(device))
    monkeypatch.setattr(functional, "remember", lambda key, x, w, *others: keys.append(
        (key[0], x.dtype, w.dtype)))
    x, w = torch.randn(2, 4, 5, 5), torch.randn(6, 4, 1, 1, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            y = dt.conv2d(x, w, backend="reference")
        with pytest.raises(dt.functional.SpecError, match="x must be a tensor"):
            dt.conv2d(x.numpy(), w)
    assert y.dtype is torch.bfloat16
    assert keys == [(id(w), torch.bfloat16, torch.bfloat16)] * 2
