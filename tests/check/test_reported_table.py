"""Each reported false alarm has a test that is there."""

import re
from pathlib import Path

from reported import REPORTED

TESTS = Path(__file__).resolve().parents[1]


def test_all_are_listed() -> None:
    assert list(REPORTED) == [f"F{number}" for number in range(1, 45)]


def test_each_names_tests_that_are_there() -> None:
    missing = []
    for number, row in REPORTED.items():
        assert row.tests, f"{number} has no test"
        for test in row.tests:
            file, _, function = test.partition("::")
            if not re.search(rf"^def {function}", (TESTS / file).read_text("utf-8"), re.M):
                missing.append(test)
    assert missing == []
