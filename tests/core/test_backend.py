"""The protocol of backends: what is asked of one, what it is known by, and what it refuses."""

import shutil

import pytest
from faulty_backends import Wrong
from tuning_backends import Compiled

from dscore.backends.emulated import EmulatedBackend
from dscore.backends.hip import HipAnySizes, HipBackend
from dscore.backends.reference.backend import ReferenceBackend
from dscore.building.compilers import find_compiler, missing_compiler
from dscore.building.library import sources
from dscore.core import catalog
from dscore.core.backend import Backend, backend, backend_names, require_accepted
from dscore.core.errors import SpecError, UnavailableError
from dscore.core.token import parse_problem
from dscore.solving.solver import best_plan


class Former:
    """A backend as it was written before backends had identities and runners."""

    name, any_device, compiles = "former", True, False

    def missing(self):
        return None

    def device(self):
        return catalog.device("z100sm")

    def refuses(self, plan):
        return ()

    def prepare(self, plans):
        return None

    def compile(self, plan):
        return None


class GemmOnly(ReferenceBackend):
    algorithms = ("gemm",)


@pytest.mark.parametrize("kind", [HipBackend, HipAnySizes, EmulatedBackend, ReferenceBackend, Wrong,
                                  Compiled])
def test_backends_follow_the_protocol(kind):
    assert isinstance(kind(), Backend)


def test_a_variant_is_taken_by_its_name_alone():
    variant = backend("hip_any")
    assert (type(variant), variant.sizes) == (HipAnySizes, "any")
    assert "hip_any" not in backend_names()


def test_a_backend_that_lacks_members_is_told_which():
    with pytest.raises(SpecError, match="lacks algorithms, identity, runner, workers; "):
        backend(f"{__name__}:Former")


def test_a_plan_of_an_algorithm_that_the_backend_lacks_is_refused():
    device = catalog.device("z100sm")
    require_accepted(GemmOnly(), best_plan(parse_problem("n1c8h6w6_o16k1"), device))
    depthwise = best_plan(parse_problem("n1c8h6w6_o8k3g8"), device)
    with pytest.raises(UnavailableError, match="E-ALGORITHM: algorithm is row_reuse, allowed gemm"):
        require_accepted(GemmOnly(), depthwise)


@pytest.fixture
def folder(tmp_path):
    """A folder of kernel sources with a header of one name in two folders."""
    for name in ("gemm", "direct"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.hpp").write_text(f"// {name}\n")
    return tmp_path


def kernels(folder):
    return EmulatedBackend(include=folder).identity("gfx906").kernels


def test_headers_of_one_name_in_two_folders_are_told_apart(folder):
    first = kernels(folder)
    assert kernels(folder) == first
    (folder / "gemm").rename(folder / "third")
    (folder / "direct").rename(folder / "gemm")
    (folder / "third").rename(folder / "direct")
    assert kernels(folder) != first


def test_a_header_in_any_folder_counts_by_its_path_and_contents(folder):
    states = [kernels(folder)]
    (folder / "gemm" / "kernel.hpp").write_text("// other\n")
    states.append(kernels(folder))
    (folder / "gemm" / "deep").mkdir()
    (folder / "gemm" / "deep" / "more.h").write_text("")
    states.append(kernels(folder))
    (folder / "gemm" / "deep").rename(folder / "gemm" / "moved")
    states.append(kernels(folder))
    assert len(set(states)) == 4
    (folder / "notes.txt").write_text("no source")
    assert kernels(folder) == states[-1]


def test_a_copy_of_the_sources_is_the_same_kernels(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(sources(), copy)
    assert kernels(copy) == kernels(None) != kernels(tmp_path)


def test_the_compiler_is_looked_for_when_it_is_asked_for(monkeypatch):
    monkeypatch.setenv("DSCORE_NVCC", "no/such/nvcc")
    identity = HipBackend().identity("sm_90")
    assert identity.kernels == HipBackend().identity("gfx906").kernels
    with pytest.raises(UnavailableError, match="DSCORE_NVCC"):
        identity.compiler  # noqa: B018
    assert ReferenceBackend().identity("sm_90").compiler == "none"


@pytest.mark.skipif(missing_compiler("host") is not None, reason="no host compiler")
def test_the_emulated_device_is_built_by_the_hosts_compiler():
    assert EmulatedBackend().identity("sm_90").compiler == find_compiler("host").version
