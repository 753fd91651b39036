"""Planted faults are still in the sources that they alter: most of them are planted in the deep
profile alone, where a source that has moved would go unseen."""

import importlib.util
from pathlib import Path

import pytest

from dscore.building.headers import sources

HERE = Path(__file__)
MODULES = [path for path in sorted(HERE.parent.glob("test_*.py"))
           if path != HERE and "altered(" in path.read_text()]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_what_is_altered_is_there_once(path):
    spec = importlib.util.spec_from_file_location(f"planted_in_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, fault in getattr(module, "FAULTS", {}).items():
        texts = [part for part in fault if isinstance(part, str)]
        if len(texts) > 2 and texts[0].endswith(".hpp"):
            file, right = texts[:2]
            count = (sources() / file).read_text().count(right)
            assert count == 1, f"{name}: {file} has {right!r} {count} times"
