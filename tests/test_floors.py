"""The house keeps its floors: imports only go down, folders are shipped, importing is light."""

import ast
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

FLOORS = [
    ["errors", "text"],
    ["places"],
    ["spec", "device", "tiling"],
    ["notation"],
    ["plan"],
    ["geometry", "catalog", "arrays", "accuracy"],
    ["resources"],
    ["registers", "traffic", "enumeration"],
    ["limits"],
    ["constraints"],
    ["cost"],
    ["solver", "picture"],
    ["verdict"],
    ["bench_rows", "cache"],
    ["standing", "measurement"],
    ["backend", "explanation"],
    ["backends"],
    ["checking", "records", "replay", "tunings"],
    ["stands", "hints", "transfer"],
    ["trial"],
    ["search"],
    ["tune"],
    ["strategies"],
    ["adapters"],
    ["eager"],
    ["decision"],
    ["api", "conformance"],
    ["entrants"],
    ["bench"],
    ["cli"],
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def _modules():
    return [(package, path) for package, folder in FOLDERS.items()
            for path in sorted((ROOT / folder).glob("*.py"))]


def _room(module):
    """The floor's name for a dotted module of dscore, None for others."""
    parts = module.split(".")
    return parts[1] if parts[0] == "dscore" and len(parts) > 1 else None


def _imports(package, path):
    """Rooms of dscore that a file imports, wherever in the file it does so."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[:len(package.split(".")) - node.level + 1]
                            ) if node.level else ""
            stem = ".".join(part for part in (base, node.module or "") if part)
            names = [stem, *(f"{stem}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            room = _room(name)
            if room in FLOOR:
                yield room


@pytest.mark.parametrize(("package", "path"), _modules(),
                         ids=lambda v: v.stem if isinstance(v, Path) else v)
def test_imports_only_go_down(package, path):
    room = _room(f"{package}.{path.stem}") if path.stem != "__init__" else _room(package)
    if package == "dscore" and path.stem == "__init__":
        return  # the door: it names every room, and enters none until asked
    data = package in ("dscore._specs", "dscore._hip_src")
    assert room in FLOOR or data, f"{path.name} stands on no floor"
    for other in _imports(package, path):
        lower = FLOOR[other] < FLOOR[room] or other == room
        assert lower, f"{path.name} (floor {FLOOR[room]}) imports {other} (floor {FLOOR[other]})"


def test_every_package_folder_is_shipped():
    holding = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/__init__.py")
               if path.parts[len(ROOT.parts)] not in ("tests", "build")}
    assert holding == set(FOLDERS.values())
    assert set(FOLDERS) == set(PYPROJECT["tool"]["setuptools"]["packages"])


def test_rooms_stay_small():
    large = {path.name: len(path.read_text().splitlines())
             for path in [*(path for _, path in _modules()), *ROOT.glob("tests/**/*.py"),
                          *ROOT.glob("hip_src/*.h*")]}
    assert {name: lines for name, lines in large.items() if lines > 300} == {}


def test_functions_stay_small():
    long = {f"{path.name}:{node.name}": node.end_lineno - node.lineno + 1
            for _, path in _modules() for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef)}
    assert {name: lines for name, lines in long.items() if lines > 60} == {}


@pytest.mark.parametrize(("statement", "absent"), [
    ("import dscore", ["numpy", "cffi", "torch", "typer", "rich", "hypothesis"]),
    ("import dscore; dscore.ConvSpec", ["cffi", "torch", "typer", "hypothesis"]),
    ("import dscore; dscore.conv", ["cffi", "torch", "typer", "hypothesis",
                                    "dscore.backends.reference"]),
])
def test_importing_is_light(statement, absent):
    code = f"{statement}\nimport sys\nprint([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_touches_nothing(tmp_path):
    code = "import dscore, dscore.api, dscore.cli, dscore.conformance, dscore.backends.reference"
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin", "XDG_CACHE_HOME": str(tmp_path / "cache"),
           "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    assert list(tmp_path.iterdir()) == []
