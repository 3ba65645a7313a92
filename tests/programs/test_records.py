"""Records as text, read back by the standard library."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import numpy as np
import pytest

from ada_bandit.programs.records import plain, to_csv, to_json, to_jsonl


def test_csv_has_the_columns_of_the_longest_record() -> None:
    text = to_csv([{"a": 1}, {"a": 2.5, "b": 'x, "y"'}, {"b": "z"}])
    assert "\r" not in text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows == [{"a": "1", "b": ""}, {"a": "2.5", "b": 'x, "y"'}, {"a": "", "b": "z"}]


def test_csv_refuses_a_column_that_the_longest_record_lacks() -> None:
    with pytest.raises(ValueError, match="c"):
        to_csv([{"a": 1, "b": 2}, {"c": 3}])


def test_json_refuses_what_json_has_no_number_for() -> None:
    assert json.loads(to_json({"a": [1, 0.1]})) == {"a": [1, 0.1]}
    with pytest.raises(ValueError, match="JSON"):
        to_json({"a": math.nan})


def test_plain_values_go_into_json() -> None:
    value: dict[Any, Any] = {
        1: np.float64(math.inf),
        "a": (np.int64(3), np.array([[1.5, math.nan]])),
        "b": {"c": np.array([1]) > 0},
    }
    assert plain(value) == {"1": None, "a": [3, [[1.5, None]]], "b": {"c": [True]}}
    assert type(plain(np.int64(3))) is int
    lines = to_jsonl([value, {"d": "é"}]).splitlines()
    assert [json.loads(line) for line in lines] == [plain(value), {"d": "é"}]
    assert "é" in lines[1]
