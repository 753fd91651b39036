"""The house keeps its floors: imports only go down, folders are shipped, importing is light."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = PYPROJECT["tool"]["setuptools"]["package-dir"]

# Lowest first; packages on one floor may use one another, but not in a circle.
FLOORS = [
    ["core"],
    ["ops", "cache"],
    ["algorithms"],
    ["solving"],
    ["checking", "building", "measuring"],
    ["tuning"],
    ["calling"],
    ["api"],
    ["bench", "torch", "backends", "cli"],
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def _modules():
    """Every module of the package by its dotted name."""
    found = {}
    for package, folder in sorted(FOLDERS.items(), key=lambda item: len(item[0])):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inner = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *inner)).removesuffix(".__init__")] = path
    return found


MODULES = _modules()


def _room(module):
    """The floor's name for a dotted module of dscore, None for others."""
    parts = module.split(".")
    return parts[1] if parts[0] == "dscore" and len(parts) > 1 else None


@functools.cache
def _nodes(path):
    """All nodes of a file's syntax tree."""
    return [*ast.walk(ast.parse(path.read_text()))]


def _imports(module, path):
    """Dotted names under dscore that a file imports, wherever in the file it does so."""
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[:len(parts) - node.level + 1]) if node.level else ""
            stem = ".".join(part for part in (base, node.module or "") if part)
            within = [f"{stem}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else stem for name in within]
        else:
            continue
        yield from (name for name in names if _room(name) in FLOOR)


def test_every_module_is_on_a_floor():
    assert [module for module in MODULES if _room(module)
            and _room(module) not in FLOOR and not _room(module).startswith("_")] == []


def test_imports_only_go_down():
    # What is on no floor, as data is, imports nothing.
    upward = {module: sorted(above) for module, path in MODULES.items() if _room(module)
              if (above := {name for name in _imports(module, path)
                            if FLOOR[_room(name)] > FLOOR.get(_room(module), -1)})}
    assert upward == {}


def test_no_package_of_dscore_is_imported_in_a_circle():
    above = {room: {_room(name) for module, path in MODULES.items() if _room(module) == room
                    for name in _imports(module, path)} - {room} for room in FLOOR}
    while above:
        free = [room for room, others in above.items() if not others & set(above)]
        assert free, f"these import one another: {sorted(above)}"
        for room in free:
            del above[room]


def test_no_module_is_imported_in_a_circle():
    below = {module: {name for name in _imports(module, path) if name in MODULES} - {module}
             for module, path in MODULES.items() if _room(module)}
    while below:
        free = [module for module, others in below.items() if not others & set(below)]
        assert free, f"these import one another, or what does: {sorted(below)}"
        for module in free:
            del below[module]


def test_dscore_names_no_backend_but_in_its_registry():
    found = {module for module in MODULES if _room(module) not in (None, "backends", "cli")
             for name in _imports(module, MODULES[module]) if _room(name) in ("backends", "cli")}
    assert found == set()


def test_every_package_folder_is_shipped():
    holding = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/__init__.py")
               if path.parts[len(ROOT.parts)] not in ("tests", "build")}
    assert holding == set(FOLDERS.values())
    packages = {module for module, path in MODULES.items() if path.stem == "__init__"}
    assert packages == set(PYPROJECT["tool"]["setuptools"]["packages"])


def test_rooms_stay_small():
    # By their whole paths: rooms of different folders share names.
    large = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
             for path in [*MODULES.values(), *ROOT.glob("tests/**/*.py"),
                          *ROOT.glob("hip_src/**/*.h*")]}
    assert {name: lines for name, lines in large.items() if lines > 300} == {}


def test_lines_of_kernels_fit_the_width_of_all_code():
    width = PYPROJECT["tool"]["ruff"]["line-length"]
    long = [f"{path.name}:{number}" for path in ROOT.glob("hip_src/**/*.h*")
            for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > width]
    assert long == []


def test_functions_stay_small():
    long = {f"{path.name}:{node.name}": node.end_lineno - node.lineno + 1
            for path in MODULES.values() for node in _nodes(path)
            if isinstance(node, ast.FunctionDef)}
    assert {name: lines for name, lines in long.items() if lines > 60} == {}


@pytest.mark.parametrize(("statement", "absent"), [
    ("import dscore", ["numpy", "cffi", "torch", "typer", "rich", "hypothesis"]),
    ("import dscore; dscore.ConvSpec", ["cffi", "torch", "typer", "hypothesis"]),
    ("import dscore; dscore.conv", ["cffi", "torch", "typer", "hypothesis",
                                    "dscore.backends.reference"]),
    # filelock's hook makes each later call of dscore.conv slower.
    ("import dscore.calling.prepare, dscore.backends.hip", ["filelock", "torch", "typer"]),
])
def test_importing_is_light(statement, absent):
    code = f"{statement}\nimport sys\nprint([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_touches_nothing(tmp_path):
    code = "import dscore, dscore.api, dscore.cli, dscore.checking.conformance"
    code += ", dscore.backends.reference"
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin", "XDG_CACHE_HOME": str(tmp_path / "cache"),
           "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    assert list(tmp_path.iterdir()) == []
