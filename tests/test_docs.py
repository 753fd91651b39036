"""What the documents say is still so: names exist, examples run, every equation is placed."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import dscore
from dscore.measuring import vendor_runtime

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PAPERS = (ROOT / "docs" / "papers.md").read_text()
README = (ROOT / "README.md").read_text()
MODULES = [module.name for module in pkgutil.walk_packages(dscore.__path__, "dscore.")
           if "__main__" not in module.name]


def test_every_extra_that_is_named_is_there():
    """In what an error advises as well: ``pip install dscore[plot]``."""
    texts = [path.read_text() for folder in ("dscore", "backends", "cli", "docs")
             for path in (ROOT / folder).rglob("*.[pm][yd]")]
    named = {name for text in (README, *texts) for name in re.findall(r"dscore\[(\w+)\]", text)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"plot", "torch"} <= named
    assert named | {*vendor_runtime._EXTRAS.values()} <= {*project["optional-dependencies"]}


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = sum(len(test.examples) for name in MODULES
                   for test in finder.find(importlib.import_module(name)))
    assert examples > 30


def resolve(dotted):
    """The object a dotted name stands for."""
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields[part] if part in fields else getattr(found, part)
        return found
    raise AttributeError(dotted)


@pytest.mark.parametrize("dotted", sorted(set(re.findall(r"`(dscore(?:\.\w+)+)`", PAPERS))))
def test_names_in_the_papers_page_exist(dotted):
    assert resolve(dotted) is not None


@pytest.mark.parametrize("path", sorted(set(re.findall(
    r"`((?:specs|tests|docs|dscore|backends|cli)/[\w./]+)`", PAPERS + README))))
def test_paths_in_the_documents_exist(path):
    assert (ROOT / path).exists()


def test_tests_named_in_the_papers_page_exist():
    named = set(re.findall(r"`(test_\w+)`", PAPERS))
    source = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert {name for name in named if f"def {name}(" not in source} == set()


@pytest.mark.parametrize(("section", "labels"), [
    ("Liu et al. 2024", [*(f"Eq. {n}" for n in range(1, 8)), *(f"Table {n}" for n in range(1, 10)),
                         *(f"Figure {n}" for n in range(1, 14)), "Algorithm 1", "Algorithm 2"]),
    ("Lu et al. 2021", ["row reuse", "column reuse", "dynamic tile size", "INT8"]),
    ("Jia et al. 2020", [*(f"Eq. {n}" for n in range(1, 11)), "Table 1", "Table 2", "Algorithm 1",
                         "Listing 1", "Listing 2"]),
])
def test_every_numbered_item_has_its_row(section, labels):
    text = PAPERS.partition(f"## {section}")[2].partition("\n## ")[0]
    rows = {cell.strip() for line in text.splitlines() if line.startswith("| ")
            for cell in line.split("|")[1].split(",")}
    assert [label for label in labels if label not in rows] == []


def test_the_readme_example_runs():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    scope = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert scope["y"].shape == (1, 32, 56, 56)


def test_the_readme_fits_a_screen():
    assert len(README.splitlines()) <= 60
    assert max(map(len, README.splitlines())) <= 100
