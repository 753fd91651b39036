"""Mutation testing: each mutant of the list is killed (deep profile), and the command finds what
is not.
"""

import re

import mutants
import pytest

LISTED = mutants.listed()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return mutants.Tree(tmp_path_factory.mktemp("mutants"))


def test_the_tests_of_every_mutant_are_there():
    for mutant in LISTED:
        assert mutant.guards
        assert mutant.old != mutant.new
        for test in mutant.tests:
            path, _, name = test.partition("::")
            assert f"def {name or 'test_'}" in (mutants.ROOT / path).read_text()


@pytest.mark.deep
@pytest.mark.parametrize("mutant", LISTED, ids=str)
def test_a_mutant_is_killed(mutant, tree):
    outcome = tree.outcome(mutant)
    if outcome.word == "skipped":
        pytest.skip(f"{' '.join(mutant.tests)} does not run here")
    assert outcome.word == "killed", f"no test guards that {mutant.guards}"


SOURCE = '''"""A file."""
LEAST, WORDS = -3, ("no", True)

def inside(value, most):
    return LEAST <= value < most and not value % 2

def unseen(a):
    return max(a + 1, a)
'''


@pytest.fixture
def toy(tmp_path):
    """A repository of one file, with a test of its first function and one that skips."""
    (tmp_path / "dscore").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "dscore" / "file.py").write_text(SOURCE)
    (tmp_path / "tests" / "test_file.py").write_text(
        "from dscore.file import inside\n"
        "def test_inside():\n"
        "    assert [v for v in range(-9, 9) if inside(v, 4)] == [-2, 0, 2]\n")
    (tmp_path / "tests" / "test_skipped.py").write_text(
        "import pytest\n@pytest.mark.skip\ndef test_nothing():\n    assert False\n")
    return tmp_path


def test_generated_mutants_change_one_node_each(toy):
    every = mutants.generated(["dscore/file.py"], (), 99, 0, toy)
    texts = {mutant.text for mutant in every}
    changes = {(mutant.old, mutant.new) for mutant in every}
    assert len(texts) == len(every)
    assert {("-3", "+3"), ("3", "4"), ("2", "3"), ("1", "2"), ("a + 1", "a - 1"),
            ("a + 1", "a + 0"), ("value % 2", "value // 2"), ("max(a + 1, a)", "min(a + 1, a)"),
            ("LEAST <= value < most", "LEAST < value < most")} <= changes
    assert any("LEAST <= value < most or not value % 2" in new for _, new in changes)
    assert not any("'no'" in old or old == "True" for old, _ in changes)
    assert [mutant.line for mutant in every] == sorted(mutant.line for mutant in every)
    some = mutants.generated(["dscore/file.py"], (), 3, 1, toy)
    assert some == mutants.generated(["dscore/file.py"], (), 3, 1, toy) != every[:3]
    assert len(some) == 3


@pytest.mark.deep
def test_survivors_are_told_from_the_killed(toy, tmp_path_factory):
    tree = mutants.Tree(tmp_path_factory.mktemp("copy"), toy)
    tests = ("tests/test_file.py",)
    by_change = {(mutant.old, mutant.new): mutant
                 for mutant in mutants.generated(["dscore/file.py"], tests, 99, 0, toy)}
    assert tree.outcome(by_change["2", "3"]).word == "killed"
    assert tree.outcome(by_change["a + 1", "a - 1"]).word == "SURVIVED"
    assert (tree.root / "dscore" / "file.py").read_text() == SOURCE
    skipped = mutants.generated(["dscore/file.py"], ("tests/test_skipped.py",), 1, 0, toy)
    assert tree.outcome(skipped[0]).word == "skipped"
    (tree.root / "dscore" / "file.py").write_text(SOURCE.replace("% 2", "% 3"))
    failing = mutants.generated(["dscore/file.py"], ("tests",), 1, 0, toy)
    with pytest.raises(ValueError, match="tests fails without any mutant"):
        tree.outcome(failing[0])


def test_a_line_that_is_gone_is_named(toy, tmp_path):
    path = tmp_path / "mutants.toml"
    path.write_text('[[mutant]]\nfile = "dscore/file.py"\nold = "value"\nnew = "most"\n'
                    'guards = "x"\ntests = []\n')
    with pytest.raises(ValueError, match=re.escape("dscore/file.py holds 3 times, not once: val")):
        mutants.listed(toy, path)
