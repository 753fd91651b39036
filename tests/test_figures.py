"""Figures of the documents agree: tables with the specs, means with their layers, pictures with
tables."""

import math
import re
from pathlib import Path

import pytest
from layer_tables import tables

DOCS = Path(__file__).resolve().parents[1] / "docs"
README = (DOCS.parent / "README.md").read_text()
BENCHMARKS, NOTES, LAYERS = ((DOCS / f"{name}.md").read_text()
                             for name in ("benchmarks", "benchmark_notes", "layers"))
BATCHES = (1, 8, 16, 32, 64)
# Of the columns of the summary in docs/benchmarks.md, as the pictures and the README name them.
COLUMNS = {"over PyTorch's default": 0, "over the best of PyTorch's ways": 1}


def summary():
    """The table of docs/benchmarks.md: by kind and batch the columns' values; "hot" is a kind."""
    rows, kind = {}, ""
    for line in BENCHMARKS.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[1].isdigit():
            kind = cells[0] or kind
            rows[kind.partition(", ")[0] + ", hot" * ("hot" in kind), int(cells[1])] = [
                float(cell) for cell in (*cells[2:4], cells[5])]
    return rows


def layer_figures():
    """The tables of docs/benchmark_notes.md: by layer and batch (µs, default, best, ÷ floor)."""
    return {(cells[0].strip(), batch): tuple(map(float, cell.split(" · ")))
            for line in NOTES.splitlines() if re.match(r"\| [DP]\d+ \|", line)
            for cells in [line.strip("|").split("|")]
            for batch, cell in zip(BATCHES, cells[1:], strict=True)}


@pytest.mark.parametrize("page", ["CHANGELOG.md", "docs/devices.md"])
def test_the_number_of_devices_is_that_of_the_files(page):
    named = re.findall(r"(\d+) devices", (DOCS.parent / page).read_text())
    assert named == [str(len([*(DOCS.parent / "specs" / "devices").glob("*.toml")]))]


def test_layer_tables_are_those_of_the_specs():
    shown = [line for line in LAYERS.splitlines() if line.startswith("|")]
    assert shown == [line for lines in tables().values() for line in lines]


@pytest.mark.parametrize(("kind", "count"), [("depthwise", 30), ("pointwise", 45)])
@pytest.mark.parametrize("batch", BATCHES)
def test_means_are_those_of_the_layers(kind, count, batch):
    """As near as figures of two decimals tell it."""
    rows = [row for (layer, at), row in layer_figures().items()
            if at == batch and layer[0] == kind[0].upper()]
    assert len(rows) == count
    means = [math.exp(math.fsum(map(math.log, column)) / count)
             for column in list(zip(*rows, strict=True))[1:]]
    assert means == pytest.approx(summary()[kind, batch], abs=0.013)
    assert min(min(row[1:3]) for row in rows) >= 1  # none is lost


@pytest.mark.parametrize("kind", ["depthwise", "pointwise"])
def test_pictures_show_the_table(kind):
    """Each line's speed-ups, in the order in which the picture draws the lines."""
    picture = (DOCS / "pictures" / f"{kind}_cold.svg").read_text()
    drawn = [float(text) for text in re.findall(r">([\d.]+)×</text>", picture)]
    assert drawn == [summary()[kind, batch][column] for column in COLUMNS.values()
                     for batch in BATCHES]
    assert all(f">{name}</text>" in picture for name in COLUMNS)


def test_axes_are_divided_at_1_2_and_5():
    picture = (DOCS / "pictures" / "roofline.svg").read_text()
    ticks = [float(text.replace(",", "")) for text in re.findall(r">([\d.,]+)</text>", picture)]
    assert len(ticks) > 12
    assert {f"{tick:e}"[0] for tick in ticks} == {"1", "2", "5"}


def test_the_headline_of_the_readme_is_in_the_table():
    rows = re.findall(r"\| (depthwise|pointwise) \| (over [\w' ]+) \| ([\d. |]+) \|", README)
    batches = [int(text) for text in re.findall(r"\| batch (\d+) ", README)]
    assert len(rows) == 4
    for kind, column, cells in rows:
        assert [float(cell) for cell in cells.split("|")] == [
            summary()[kind, batch][COLUMNS[column]] for batch in batches]
