"""What planted faults alter is still in the sources: most of them are planted in the deep profile
alone, where a source that has moved would go unseen."""

import importlib.util
from pathlib import Path

import pytest

from dscore.building.headers import sources

HERE = Path(__file__)
MODULES = [path for path in sorted(HERE.parent.glob("test_*.py"))
           if path != HERE and "\nFAULTS = {" in path.read_text()]


def places_of(fault):
    """The sources that a fault may alter, and what it alters: the first of its texts beside the
    name of a file, which a module may have elsewhere."""
    texts = [part for part in fault if isinstance(part, str)]
    named = [text for text in texts if text.endswith(".hpp")]
    right = next(text for text in texts if text not in named)
    return [sources() / name for name in named] or [*sources().rglob("*.hpp")], right


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_what_is_altered_is_there(path):
    spec = importlib.util.spec_from_file_location(f"planted_in_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.FAULTS
    for name, fault in module.FAULTS.items():
        files, right = places_of(fault)
        assert 1 in [file.read_text().count(right) for file in files], f"{name}: {right!r}"


def test_a_source_that_has_moved_is_seen():
    files, right = places_of((None, "support/halves.hpp", "no such line", "another"))
    assert [file.name for file in files] == ["halves.hpp"]
    assert right == "no such line"
    assert 1 not in [file.read_text().count(right) for file in files]
