"""A checkout and an installed wheel: Python takes all of the one, or all of the other."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from dscore import _checkout

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith("PYTHON")}

PROGRAM = """
import dscore, numpy
y = dscore.conv(numpy.ones((1, 2, 3, 3), numpy.float32), numpy.ones((2, 1, 3, 3), numpy.float32),
                padding="same", groups=2, backend="reference")
assert y[0, 0].tolist() == [[4, 6, 4], [6, 9, 6], [4, 6, 4]]

import importlib.resources, dscore.backends.emulated, dscore.building.library, dscore.cli.app
from dscore.core import catalog
assert "h200" in catalog.devices()
print(dscore.__file__, dscore.backends.emulated.__file__, dscore.backends.reference.__file__,
      dscore.cli.app.__file__, dscore.building.library.sources() / "abi.h",
      importlib.resources.files("dscore._specs") / "devices", sep="\\n")
"""


def test_a_checkout_joins_the_folders_that_are_shipped():
    assert {"dscore": "dscore", **_checkout.FOLDERS} == FOLDERS


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what is shipped, in a folder of its own."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in FOLDERS.values():
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def installed(checkout, tmp_path_factory):
    """An environment with the checkout's wheel, and this one's packages that it depends on."""
    if find_spec("setuptools") is None:
        pytest.skip("no setuptools to build a wheel with; pip install 'setuptools>=77'")
    folder = tmp_path_factory.mktemp("installed")
    build = "import sys, setuptools.build_meta as build; build.build_wheel(sys.argv[1])"
    run([sys.executable, "-c", build, folder], checkout)
    run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], folder)
    # Python says lib, where lib64 may be a link to it, and come first.
    packages = next((folder / "venv").glob("lib*/python*/site-packages")).resolve()
    # To install a wheel of Python alone is to unpack it.
    zipfile.ZipFile(next(folder.glob("dscore-*-py3-none-any.whl"))).extractall(packages)
    others = {str(Path(find_spec(name).origin).parents[1]) for name in ("numpy", "cffi", "typer")}
    (packages / "others.pth").write_text("\n".join(sorted(others)))
    return folder / "venv", packages


def run(command, folder):
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True,
                          check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.deep
def test_in_a_checkout_everything_comes_from_it(checkout, installed):
    python = installed[0] / "bin" / "python"
    files = [Path(line) for line in run([python, "-c", PROGRAM], checkout).splitlines()]
    assert len(files) == 6
    assert all(file.exists() and checkout in file.parents for file in files), files
    assert "h200" in run([python, "-m", "dscore.cli", "devices"], checkout)


@pytest.mark.deep
def test_elsewhere_everything_comes_from_the_wheel(installed, tmp_path):
    venv, packages = installed
    files = [Path(line) for line in run([venv / "bin/python", "-c", PROGRAM],
                                        tmp_path).splitlines()]
    assert len(files) == 6
    assert all(file.exists() and packages in file.parents for file in files), files
