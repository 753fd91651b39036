"""The command line called in this process and in one of its own, for all tests of it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

from dscore.cli import main
from dscore.tuning import shipped_hints

_SCRIPT = Path(sys.executable).with_name("dscore")
DSCORE = [str(_SCRIPT)] if _SCRIPT.exists() else [sys.executable, "-m", "dscore.cli"]
SMALL = "n1c4h5w5_o8k3p1g4_bias_relu6"
TILING = {"wave_w": 1, "wave_c": 64, "repeat_w": 1, "repeat_c": 4, "group_c": 16}


class Result(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Result]


@pytest.fixture(scope="session", autouse=True)
def _command_line_made_once() -> Iterator[None]:
    """typer makes all commands of their functions' arguments anew for each call of one of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        result = Result(code, *capsys.readouterr())
        assert "Traceback" not in result.out + result.err
        return result

    return called


@pytest.fixture
def json_of(call: Call) -> Callable[..., Any]:
    """What a command prints with --json, which must be all of stdout and strict JSON."""

    def parsed(*arguments: object, code: int = 0) -> Any:
        result = call(*arguments, "--json")
        assert result.code == code, result.err

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is no JSON")

        return json.loads(result.out, parse_constant=refuse)

    return parsed


@pytest.fixture
def subprocess_path() -> str:
    """PYTHONPATH with which a process of its own finds `faulty_backends`, and what this one has."""
    return os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))


@pytest.fixture
def few_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """`env` makes a plan of each hint: of some, for tests/tuning/test_what_ships.py takes all."""
    some = [replace(one, hints=dict([*one.hints.items()][:9]))
            for one in shipped_hints.all_shipped()]
    monkeypatch.setattr(shipped_hints, "all_shipped", lambda: some)


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DSCORE, *arguments], capture_output=True, text=True, timeout=180,
                          check=False, **options)


def configuration(path: Path, **changes: object) -> Path:
    entry = {"layer": "P28", **TILING, "block_n": 2, **changes}
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items()))
    return path


def words(line: str) -> list[str]:
    return line.split()


def squeezed(text: str) -> str:
    """Without any space: a path longer than a line is broken anywhere."""
    return "".join(text.split())


def unwrapped(text: str) -> str:
    return " ".join(text.split())
