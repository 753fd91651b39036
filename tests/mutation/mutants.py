"""Mutants: the sources with one line changed, each of which some test must notice.

Those of mutants.toml are written by hand, with what they guard; others are generated from the
syntax tree of a file: comparisons and operators exchanged, numbers one more, terms dropped.
"""

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dscore.core.toml import load_toml

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")
# What tests read beside the packages.
COPIED = ("dscore", "backends", "cli", "hip_src", "specs", "tests", "docs", "pyproject.toml",
          "README.md")
# A mutant may loop for ever: seconds, and times those of the sources as they are.
LEAST_SECONDS, TIMES = 60, 10


@dataclass(frozen=True)
class Mutant:
    """A file with one change; *guards* says what the change breaks."""

    file: str
    line: int
    old: str
    new: str
    text: str = field(repr=False)  # of the whole file
    tests: tuple[str, ...]  # arguments of pytest
    guards: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old}  ->  {self.new}"


@dataclass(frozen=True)
class Outcome:
    """What the tests say of a mutant."""

    word: str  # killed, SURVIVED or skipped
    seconds: float


def listed(root: Path = ROOT, path: Path = LIST) -> list[Mutant]:
    """The mutants of a list; ValueError where a line to be changed is not there exactly once."""
    mutants = []
    for entry in load_toml(path)["mutant"]:
        source = (root / entry["file"]).read_text()
        if source.count(entry["old"]) != 1:
            raise ValueError(f"{entry['file']} holds {source.count(entry['old'])} times, not "
                             f"once: {entry['old']}")
        before, _, after = source.partition(entry["old"])
        mutants.append(Mutant(
            entry["file"], before.count("\n") + 1, entry["old"], entry["new"],
            before + entry["new"] + after, tuple(entry["tests"]), entry["guards"]))
    return mutants


def equivalents(path: Path = LIST) -> dict[tuple[str, str, str], str]:
    """Generated mutants that change nothing that can be seen, by file, old and new; the proofs."""
    return {(entry["file"], entry["old"], entry["new"]): entry["proof"]
            for entry in load_toml(path).get("equivalent", [])}


def generated(files: list[str], tests: tuple[str, ...], count: int, seed: int,
              root: Path = ROOT) -> list[Mutant]:
    """*count* mutants of some files, drawn at random; all of them if there are fewer."""
    mutants = [mutant for file in files for mutant in _of_file(root, file, tests)]
    drawn = random.Random(seed).sample(mutants, min(count, len(mutants)))
    return sorted(drawn, key=lambda mutant: (files.index(mutant.file), mutant.line))


def _of_file(root: Path, file: str, tests: tuple[str, ...]) -> Iterator[Mutant]:
    tree = ast.parse((root / file).read_text())
    for node in ast.walk(tree):
        for change in _changes(node):
            old = ast.unparse(node)
            undo = change()
            new, text = ast.unparse(node), ast.unparse(tree)
            undo()
            yield Mutant(file, node.lineno, old, new, text, tests)  # type: ignore[attr-defined]


_EXCHANGED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr,
    ast.And: ast.Or, ast.Or: ast.And, ast.USub: ast.UAdd}
_OTHER_NAME = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum",
               "any": "all", "all": "any"}
Change = Callable[[], Callable[[], None]]


def _changes(node: ast.AST) -> Iterator[Change]:
    """The changes of one node; each is made by a call, and taken back by what that returns."""
    match node:
        case ast.Compare(ops=[operator, *_]) if type(operator) in _EXCHANGED:
            rest = node.ops[1:]
            yield _set(node, "ops", [_EXCHANGED[type(operator)](), *rest])
        case ast.BinOp(op=operator) | ast.UnaryOp(op=operator) if type(operator) in _EXCHANGED:
            yield _set(node, "op", _EXCHANGED[type(operator)]())
            if isinstance(operator, ast.Add | ast.Sub) and isinstance(node, ast.BinOp):
                yield _set(node, "right", ast.Constant(0))
        case ast.BoolOp(op=operator, values=[*others, _]):
            yield _set(node, "op", _EXCHANGED[type(operator)]())
            yield _set(node, "values", others)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield _set(node, "value", number + 1)
        case ast.Call(func=ast.Name(id=name) as called) if name in _OTHER_NAME:
            yield _set(called, "id", _OTHER_NAME[name])
        case ast.Call(func=ast.Attribute(attr=name) as called) if name in _OTHER_NAME:
            yield _set(called, "attr", _OTHER_NAME[name])


def _set(node: ast.AST, name: str, value: Any) -> Change:
    def change() -> Callable[[], None]:
        before = getattr(node, name)
        setattr(node, name, value)
        return lambda: setattr(node, name, before)

    return change


class Tree:
    """A copy of the repository in a folder, in which one mutant after the other is tested."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.root = folder / "tree"
        self._untouched: dict[tuple[str, ...], Outcome] = {}
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, self.root / name,
                                ignore=shutil.ignore_patterns("__pycache__"))
            elif (root / name).exists():
                self.root.mkdir(exist_ok=True)
                shutil.copy(root / name, self.root / name)

    def outcome(self, mutant: Mutant) -> Outcome:
        """What the mutant's tests say.

        Raises ValueError where they fail without it; "skipped" where none of them runs here.
        """
        untouched = self._baseline(mutant.tests)
        if untouched.word == "skipped":
            return untouched
        path = self.root / mutant.file
        before = path.read_bytes()
        path.write_text(mutant.text)
        try:
            done, seconds = self._run(mutant.tests, LEAST_SECONDS + TIMES * untouched.seconds)
        finally:
            path.write_bytes(before)
        survived = done is not None and done.returncode == 0
        return Outcome("SURVIVED" if survived else "killed", seconds)

    def _baseline(self, tests: tuple[str, ...]) -> Outcome:
        """What the tests say of the sources as they are."""
        if tests not in self._untouched:
            done, seconds = self._run(tests, None)
            assert done is not None
            if done.returncode:
                raise ValueError(f"{' '.join(tests)} fails without any mutant:\n{done.stdout}")
            ran = re.search(r"\d+ passed", done.stdout)
            self._untouched[tests] = Outcome("passed" if ran else "skipped", seconds)
        return self._untouched[tests]

    def _run(self, tests: tuple[str, ...], most_seconds: float | None
             ) -> tuple[subprocess.CompletedProcess[str] | None, float]:
        """The tests' process, None where it did not end in time, and its seconds."""
        # The deep profile would test every mutant for hours. Without bytecode: a file changed
        # twice in a second would not be read again.
        profile = os.environ.get("HYPOTHESIS_PROFILE", "ci")
        env = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1",
               "HYPOTHESIS_PROFILE": "ci" if profile == "deep" else profile}
        began = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
                cwd=self.root, env=env, capture_output=True, text=True, check=False,
                timeout=most_seconds)
        except subprocess.TimeoutExpired:
            return None, time.monotonic() - began
        return done, time.monotonic() - began
