"""The tutorial, from top to bottom; the programs in examples/; the reference of the API."""

import ast
import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from profiles import mostly_deep

import dscore
from dscore.backends.emulated import EmulatedBackend
from dscore.building import kernel_files
from dscore.cli import main
from dscore.core.backend import choose_backend
from dscore.core.errors import UnavailableError

ROOT = Path(__file__).resolve().parents[1]
# Language, what the block is marked with, and the block.
_BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Marks of blocks, and whether these run here. What a GPU or hipcc is needed for takes minutes.
MARKS = {"": True, "install": False, "needs a GPU": False, "needs hipcc": False,
         "needs a C++ compiler": EmulatedBackend().missing() is None}


def environment(**variables):
    """The environment of a program that finds this dscore."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **variables}


def printed(language, code, scope):
    """What a block of Python prints, or each of the commands of a block of the shell."""
    out = io.StringIO()
    with redirect_stdout(out):
        if language == "python":
            exec(compile(code, "docs/tutorial.md", "exec"), scope)
            return out.getvalue()
        for line in code.splitlines():
            name, *words = shlex.split(line, comments=True)
            if "=" in name:
                print(printed_elsewhere(*name.split("="), words))
            else:
                assert (name, main(words)) == ("dscore", 0), line
    return out.getvalue()


def printed_elsewhere(variable, value, words):
    """What a command prints on a machine with nothing in its cache and without a C++ compiler."""
    assert words[0] == "dscore"
    return subprocess.run(
        [sys.executable, "-m", "dscore.cli", *words[1:]], check=True, capture_output=True,
        text=True, timeout=180, env=environment(**{
            variable: value, "DSCORE_CACHE_DIR": "elsewhere", "DSCORE_CXX": "none"})).stdout


def test_the_tutorial_runs(tmp_path, monkeypatch):
    """Blocks in their order in one namespace; each prints what the block of text below it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel_files, "_taken", {})  # what the page loads, it loads for itself
    scope, output, compared, run = {}, None, 0, 0
    for language, mark, code in _BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text()):
        if language == "toml":
            (tmp_path / code.splitlines()[0].removeprefix("# ")).write_text(code)
        elif language != "text":
            compile(code if language == "python" else "", "docs/tutorial.md", "exec")
            output = printed(language, code, scope) if MARKS[mark] else None
            run += output is not None
        elif output is not None:
            assert doctest.OutputChecker().check_output(
                code, output, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), output
            compared += 1
    assert run >= 15
    assert compared >= 15


def missing(program):
    """What a program imports and is not installed, or what else it lacks here."""
    tree = ast.parse(program.read_text())
    names = {name.partition(".")[0] for node in ast.walk(tree)
             for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import)
                          else [node.module or ""] if isinstance(node, ast.ImportFrom) else [])}
    absent = sorted(name for name in names if importlib.util.find_spec(name) is None)
    if absent:
        return f"{', '.join(absent)} is not installed"
    if "cupy" in names:
        try:
            choose_backend("hip")
        except UnavailableError as error:
            return f"CuPy needs a GPU: {error}"
    return ""


EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", mostly_deep(EXAMPLES, "numpy_arrays.py"))
def test_examples_run(name, tmp_path):
    program = ROOT / "examples" / name
    lacks = missing(program)
    if lacks:
        pytest.skip(f"{program.name}: {lacks}")
    result = subprocess.run([sys.executable, program], cwd=tmp_path, check=False, timeout=120,
                            capture_output=True, text=True,
                            env=environment(DSCORE_CACHE_DIR=str(tmp_path)))
    assert result.returncode == 0, result.stderr
    assert "right" in result.stdout.splitlines()[-1]


def test_every_library_has_an_example():
    names = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert names >= {f"{name}.py" for name in (
        "numpy_arrays", "pytorch_tensors", "cupy_arrays", "jax_arrays", "dask_tuning")}


@pytest.mark.parametrize("name", dscore.__all__)
def test_public_names_have_an_example(name):
    """For the reference of the API, which shows the docstrings; tests/test_docs.py runs them."""
    assert ">>> " in (getattr(dscore, name).__doc__ or "")


@pytest.mark.deep
def test_the_reference_of_the_api(tmp_path):
    """What `pdoc dscore` writes has every public name with its example."""
    pdoc = pytest.importorskip("pdoc", reason="pdoc is not installed; pip install dscore[docs]")
    pdoc.pdoc("dscore", output_directory=tmp_path)
    page = (tmp_path / "dscore.html").read_text()
    assert [name for name in dscore.__all__ if f'<section id="{name}">' not in page] == []
    assert page.count("&gt;&gt;&gt;") >= len(dscore.__all__)
