"""The table of speeds in the README is that of the newest result file."""

import json
from pathlib import Path

import pytest

from bench.table import README, parts, table

RESULTS = sorted((Path(__file__).parent.parent / "bench" / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS[-1:], ids=lambda p: p.name)
def test_table_of_speeds_in_readme_is_that_of_the_result_file(path):
    between = parts(README.read_text())[1]
    assert between == table(json.loads(path.read_text()), path.name)
