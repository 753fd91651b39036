"""What is asked of PyTorch about its tensors; those of the host answer alike."""

import pytest

from dscore.calling.gpu_arrays import Torch
from dscore.core.errors import SpecError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SHAPE = (2, 3, 4, 1)


def tensor(**options):
    return torch.zeros(SHAPE, **options)


def parameter():
    return torch.nn.Parameter(tensor())


@pytest.fixture
def guard():
    check = Torch().guard((tensor(), tensor()))
    if check is None:
        pytest.skip("this PyTorch has no guards")
    return check


class Subclass(torch.Tensor):
    pass


def test_tensors_alike_are_accepted(guard):
    assert guard(tensor(), tensor())
    # The last axis has one element, whose stride says nothing.
    assert guard(torch.zeros(24).as_strided(SHAPE, (12, 4, 1, 7)), tensor())


@pytest.mark.parametrize("other", [
    lambda: tensor(dtype=torch.float64),
    lambda: tensor(dtype=torch.int32),
    lambda: tensor(device="meta"),
    lambda: tensor(requires_grad=True),
    lambda: tensor().as_subclass(Subclass),
    parameter,
    lambda: torch._neg_view(tensor()),
    lambda: torch.zeros(2, 4, 3, 1),
    lambda: torch.zeros(6, 4, 1),
    lambda: torch.zeros(2, 4, 3, 1).transpose(1, 2),
    lambda: torch.zeros(4, 3, 4, 1)[::2],
    lambda: tensor().to_sparse(),
    lambda: tensor().numpy(),
    lambda: None,
])
def test_all_others_are_refused(guard, other):
    assert not guard(other(), tensor())
    assert not guard(tensor(), other())


def test_a_gradient_is_asked_for_at_every_call():
    adapter, weight = Torch(), parameter()
    with torch.no_grad():
        guard = adapter.guard((tensor(), weight))
        if guard is None:
            pytest.skip("this PyTorch has no guards")
        assert guard(tensor(), weight)
        assert adapter.direct_address(weight)
    assert not guard(tensor(), weight)
    with pytest.raises(SpecError, match="requires a gradient"):
        adapter.direct_address(weight)
    with torch.no_grad():
        assert guard(tensor(), weight)


def test_inference_has_a_guard_of_its_own():
    with torch.inference_mode():
        guard = Torch().guard((tensor(), parameter()))
        if guard is None:
            pytest.skip("this PyTorch has no guards")
        assert guard(tensor(), parameter())


@pytest.mark.parametrize("made", [None, lambda *given: None, lambda *given, **named: None])
def test_without_pytorchs_guards_there_is_none(monkeypatch, made):
    monkeypatch.setattr(torch._C._dynamo.guards, "TensorGuards", made, raising=False)
    assert Torch().guard((tensor(), tensor())) is None


@pytest.mark.parametrize(("devices", "current", "fast"), [(1, 0, True), (2, 0, False),
                                                           (2, -1, True)])
def test_results_are_made_on_the_arrays_device(monkeypatch, devices, current, fast):
    """The faster function knows the current device alone; -1 stands for the host."""
    made = []
    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cuda",
                        lambda *given: made.append(given) or tensor(), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    y = Torch().allocator(SHAPE, tensor())()
    assert (y.shape, y.is_contiguous(), y.device.type) == (SHAPE, True, "cpu")
    assert made == ([(SHAPE, (12, 4, 1, 1), torch.float32)] if fast else [])
