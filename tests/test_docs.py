"""What the documents say is still so: names, paths and options exist, examples run, every equation
is placed."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
import typer

import dscore
from dscore.cli.app import app
from dscore.core.token import problem_token

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (
    *sorted(ROOT.glob("*.md")), ROOT / "tests" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")))}
README, PAPERS, HOUSE = (PAGES[name] for name in ("README.md", "docs/papers.md", "docs/house.md"))
FOLDERS = ("dscore", "backends", "cli", "hip_src", "specs", "tests", "docs", "examples")
# Files and folders by every ending of their paths: pages also name them from a folder's own view.
PATHS = {"/".join(parts[at:]) for folder in FOLDERS for path in [ROOT / folder,
         *(ROOT / folder).rglob("*")] for parts in [path.relative_to(ROOT).parts]
         for at in range(len(parts))} | {path.name for path in ROOT.iterdir()}
MODULES = ["dscore", *(module.name for module in pkgutil.walk_packages(dscore.__path__, "dscore.")
                       if "__main__" not in module.name)]


def require_torch(name):
    """Skip the test of what needs PyTorch, where it is missing."""
    if name.startswith("dscore.torch"):
        pytest.importorskip("torch", reason="PyTorch is not installed")


def spans(text):
    """What a page has in backticks, fenced blocks apart."""
    return re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


SPANS = sorted({(page, " ".join(span.split())) for page, text in PAGES.items()
                for span in spans(text)})


def test_every_extra_that_is_named_is_there():
    """In what an error advises as well: ``pip install dscore[plot]``."""
    texts = [path.read_text() for folder in ("dscore", "backends", "cli", "docs")
             for path in (ROOT / folder).rglob("*.[pm][yd]")]
    extra = re.compile(r"(?:dscore|[`']\.)\[(\w+)\]")
    named = {name for text in (README, *texts) for name in extra.findall(text)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"plot", "torch", "cuda", "hip"} <= named
    assert named <= {*project["optional-dependencies"]}


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    require_torch(name)
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = sum(len(test.examples) for name in MODULES if "dscore.torch" not in name
                   for test in finder.find(importlib.import_module(name)))
    assert examples > 30


def resolve(dotted):
    """The object a dotted name stands for."""
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            fields = getattr(thing, "__dataclass_fields__", {})
            thing = fields[part] if part in fields else getattr(thing, part)
        return thing
    raise AttributeError(dotted)


@pytest.mark.parametrize("dotted", sorted({
    name.replace(":", ".") for _, span in SPANS
    for name in re.findall(r"(?<![\w.])dscore(?:\.\w+)+(?::\w+)?", span)}))
def test_names_in_the_documents_exist(dotted):
    require_torch(dotted)
    assert resolve(dotted) is not None


def test_paths_in_the_documents_exist():
    """Of one that stands for many, as dscore/algorithms/NAME/__init__.py, the folder of these."""
    form = re.compile(r"[\w./]+(?:/|\.(?:py|hpp|h|md|toml))")
    named = {span for _, span in SPANS if form.fullmatch(span)}
    assert named
    assert {path for path in named if path.partition("NAME")[0].rstrip("/") not in PATHS} == set()


def test_paths_in_commands_exist():
    blocks = "\n".join(re.findall(r"```sh[^\n]*\n(.*?)```", "\n".join(PAGES.values()), re.DOTALL))
    named = set(re.findall(rf"\b(?:{'|'.join(FOLDERS)})/[\w./]+", blocks))
    assert named
    assert named <= PATHS


def test_tests_named_in_the_documents_exist():
    named = {span for _, span in SPANS if re.fullmatch(r"test_\w+", span)}
    source = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert {name for name in named if f"def {name}(" not in source} == set()


def steps():
    """The steps of "How to add" that begin with one file: the file, and the step's other words."""
    for step in re.findall(r"^\d\. (.*?)(?=^\d\. |^\n|\Z)", HOUSE, re.MULTILINE | re.DOTALL):
        path, *words = spans(step) or [""]
        if (ROOT / path).is_file():
            yield path, words


def test_the_lines_to_edit_are_in_the_files_that_the_house_page_names():
    named = {(path, word) for path, words in steps() for word in words
             if re.fullmatch(r"_?[A-Z][A-Z_]+", word)}
    assert {"_REGISTRY", "ELEMENTS", "_DEVICES"} <= {word for _, word in named}
    assert {(path, word) for path, word in named if not re.search(
        rf"^{word}\b", (ROOT / path).read_text(), re.MULTILINE)} == set()


def command_of(words):
    """The command that the words of a line begin with, and the other words."""
    command = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def command_lines():
    """Command lines of fenced blocks, and of the help of every command."""
    def commands(one):
        yield one
        for sub in getattr(one, "commands", {}).values():
            yield from commands(sub)

    blocks = re.findall(r"```sh[^\n]*\n(.*?)```", "\n".join(PAGES.values()), re.DOTALL)
    helps = [one.help or "" for one in commands(typer.main.get_command(app))]
    lines = [line.strip() for text in (*blocks, *helps) for line in text.splitlines()]
    # What follows two spaces says what the command does.
    return sorted({part.partition(" > ")[0] for line in lines
                   for part in re.split("  | #", line)[0].split(" && ")
                   if part.startswith("dscore ")})


@pytest.mark.parametrize("line", command_lines())
def test_command_lines_of_the_documents_and_the_help_are_right_usage(line):
    command, words = command_of(shlex.split(line)[1:])
    command.make_context("dscore", words)  # raises a usage error; runs nothing


@pytest.mark.parametrize(("page", "span"), [
    (page, span) for page, span in SPANS if re.match(r"dscore [a-z]", span)])
def test_commands_in_the_text_have_their_options(page, span):
    command, words = command_of([word for word in shlex.split(span)[1:] if word != "..."])
    known = {name for one in command.params for name in one.opts}
    assert {word for word in words if word.startswith("--")} <= known, page


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


def test_the_registers_page_and_its_script_go_by_eq_6():
    """The script imports the house as it is, and its terms add up to the plan's registers."""
    spec = importlib.util.spec_from_file_location("registers", ROOT / "docs" / "registers.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name in ("P13", "D1", "n1c16h9w7_o8k3"):
        for device in ("z100sm", "h200"):
            plan = dscore.plan_for(name, device)
            family, terms = script.features({"problem": problem_token(plan.problem),
                                             "device": device, "tiling": plan.tiling.as_json()})
            assert sum(terms) + 30 == plan.use.registers
            assert family in (*script.FAMILIES, "implicit_gemm")
    assert {family for family in script.FAMILIES
            if PAGES["docs/registers.md"].count(f"| {family} |") < 4} == set()


def test_the_readme_example_runs():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    scope = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert scope["y"].shape == (1, 32, 56, 56)


def test_the_readme_fits_a_screen():
    assert len(README.splitlines()) <= 60
    assert max(map(len, README.splitlines())) <= 100
