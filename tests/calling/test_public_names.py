"""What a user meets first: the public names, and the device of a question that states none."""

import pydoc
import re

import pytest

import dscore
from dscore import api
from dscore.core import backend, catalog
from dscore.core.errors import UnavailableError


def test_only_public_names_are_listed():
    assert set(dir(dscore)) == {*dscore.__all__, "__version__"}
    assert not {name for name in dir(dscore) if name.startswith("_")} - {"__version__"}
    assert all(callable(getattr(dscore, name)) for name in dscore.__all__)


def test_help_tells_every_public_name_before_the_modules():
    text = pydoc.render_doc(dscore, renderer=pydoc.plaintext)
    first = text.partition("PACKAGE CONTENTS")[0]
    assert {name for name in dscore.__all__ if not re.search(rf"\b{name}\b", first)} == set()


def test_a_prompt_shows_what_print_does():
    space = dscore.solve("P28", "z100sm", rules="paper")
    assert repr(space) == str(space) == (
        "701 tilings of channel_distribution for pointwise 320x7x7->1280 on z100sm, paper rules, "
        "of 1,026 legal ones")
    tiling = space[0]
    for answer in (dscore.plan_for("P28", "z100sm", tiling=tiling), dscore.explain("P28", "z100sm"),
                   dscore.validate("P28", tiling, "z100sm")):
        assert repr(answer) == str(answer) == answer.text()


def test_no_module_has_the_name_of_a_thing():
    """dscore.plan, of a module, would be a strange answer to who looks for plan_for."""
    for name in ("plan", "device", "problem", "spec", "kernel", "run", "conv2d"):
        with pytest.raises(AttributeError, match=f"module 'dscore' has no attribute '{name}'"):
            getattr(dscore, name)
    with pytest.raises(AttributeError, match=r"did you mean .*plan_for"):
        dscore.plan  # noqa: B018


ASKING = {
    "plan_for": lambda **device: dscore.plan_for("P13", **device).device,
    "solve": lambda **device: dscore.solve("P13", **device).device,
    "explain": lambda **device: dscore.explain("P13", **device).plan.device,
    "validate": lambda **device: dscore.validate(
        "P13", dict(threads=64, thread_c=1), **device).device,
    "trace": lambda **device: dscore.trace("n1c1h3w3_o1k3", **device) and api.device_of(
        device.get("device")),
}


@pytest.mark.parametrize("name", ASKING)
def test_the_gpu_that_is_here_is_planned_for(name, monkeypatch):
    monkeypatch.setattr(api, "gpu_here", lambda: catalog.device("h200"))
    assert ASKING[name]().name == "h200"
    assert ASKING[name](device="v100").name == "v100"
    assert "assumed" not in str(dscore.explain("P13"))
    monkeypatch.setattr(api, "gpu_here", lambda: None)
    assert ASKING[name]().name == "z100sm"


def test_an_assumed_device_is_said(capsys):
    text = str(dscore.explain("P13"))
    assert re.search(r"^assumed device +z100sm, as there is no GPU here; device= ",
                     text, re.M)
    for told in (dscore.explain("P13", "z100sm"), dscore.explain(dscore.plan_for("P13"))):
        assert told.assumed == ""
        assert "assumed" not in str(told)
    assert capsys.readouterr() == ("", "")


class Gpu:
    """A backend for a GPU that is not here, or is."""

    here = False

    def device(self):
        if not self.here:
            raise UnavailableError("no GPU")
        return catalog.device("v100")


@pytest.fixture
def gpu(monkeypatch):
    members = [*backend.Backend.__annotations__, *backend._methods(backend.GpuBackend),
               *backend._methods(backend.Backend)]
    kind = type("AGpu", (Gpu,), {name: lambda *given: None for name in members
                                 if name != "device"})
    monkeypatch.setattr(backend, "_REGISTRY", {
        "reference": backend._REGISTRY["reference"], "gpu": f"{__name__}:AGpu"})
    monkeypatch.setitem(globals(), "AGpu", kind)
    backend.backend.cache_clear()
    yield kind
    backend.backend.cache_clear()


def test_the_gpu_here_is_that_of_the_first_backend_for_gpus(gpu):
    assert backend.gpu_here() is None
    gpu.here = True
    assert backend.gpu_here() == catalog.device("v100")
