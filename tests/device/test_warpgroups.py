"""Products of warpgroups and boxes of tensors on a GPU of sm_90, against NumPy: as they are on the
emulated device by tests/building/test_warpgroups.py."""

import subprocess

import numpy as np
import pytest
import warpgroup_probe as probe

from dscore.building.compilers import environment, find_compiler, missing_compiler
from dscore.building.headers import sources

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.skipif(missing_compiler("nvcc") is not None, reason="nvcc is not installed"),
    pytest.mark.skipif(not torch.cuda.is_available()
                       or torch.cuda.get_device_capability() != (9, 0),
                       reason="no GPU of sm_90 is here")]


def on_gpu(arrays, launch):
    """Launch on copies of the arrays on the GPU."""
    there = [torch.from_numpy(one.view(np.uint8).ravel()).cuda() for one in arrays]
    code = launch(*(probe.address(one.data_ptr()) for one in there))
    torch.cuda.synchronize()
    return code, there[-1].cpu().numpy().view(arrays[-1].dtype).reshape(arrays[-1].shape)


@pytest.fixture(scope="module")
def probes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probes")
    (folder / "unit.cu").write_text(probe.unit())
    subprocess.run([find_compiler("nvcc").path, "-std=c++17", "-O3", "-arch=sm_90a", "-I",
                    sources(), "-Xcompiler", "-fPIC", "-shared", "unit.cu", "-o", "unit.so"],
                   cwd=folder, check=True, env=environment("nvcc"))
    return probe.Probes(folder / "unit.so", on_gpu)


@pytest.mark.parametrize("name", probe.PRODUCTS)
def test_products_are_numpys(probes, name):
    for rows, depth, columns in probe.sizes(name):
        given, wanted = probes.product(name, rows, depth, columns)
        assert np.array_equal(given, wanted), (rows, depth, columns)


def test_what_the_engine_does_not_take_is_refused(probes):
    assert probes.raw_product("halves_24", 64, 20, 24) != 0  # rows of 40 bytes
