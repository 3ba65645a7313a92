"""The checks of input: what they accept, and what their messages say."""

import math
from typing import Any

import numpy as np
import pytest

from ada_bandit.errors import (
    AdaBanditError,
    InputError,
    ProtocolError,
    check_count,
    check_number,
    check_pass_rates,
    unknown_name,
)


def test_errors_are_of_the_standard_classes_too() -> None:
    assert issubclass(InputError, AdaBanditError)
    assert issubclass(InputError, ValueError)
    assert issubclass(ProtocolError, AdaBanditError)
    assert issubclass(ProtocolError, RuntimeError)


@pytest.mark.parametrize("value", [1, 7, np.int64(3), np.uint8(3), 10**30])
def test_counts(value: Any) -> None:
    count = check_count("x", value)
    assert count == value
    assert type(count) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", None, True, np.True_, math.nan, np.array([1, 2]), np.float64(2)])
def test_what_is_no_count_is_quoted(value: Any) -> None:
    with pytest.raises(InputError, match="x must be a whole number of at least 1; got ") as caught:
        check_count("x", value)
    assert str(caught.value).endswith(f"got {value!r}")


def test_counts_may_start_elsewhere() -> None:
    assert check_count("x", 0, 0) == 0
    with pytest.raises(InputError, match="at least 3; got 2"):
        check_count("x", 2, 3)


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.25), np.int64(1)])
def test_numbers(value: Any) -> None:
    number = check_number("x", value, 0, 1)
    assert number == value
    assert type(number) is float


@pytest.mark.parametrize("value", [-1e-9, 1.1, math.nan, math.inf, "0.5", None, True, [0.5], np.array([0.5, 0.5])])
def test_what_is_no_number_is_quoted(value: Any) -> None:
    with pytest.raises(InputError, match=r"x must be a finite number in \[0, 1\]; got ") as caught:
        check_number("x", value, 0, 1)
    assert str(caught.value).endswith(f"got {value!r}")


@pytest.mark.parametrize("value", [0, 1, 0.0])
def test_strict_bounds_exclude_the_ends(value: float) -> None:
    with pytest.raises(InputError, match=rf"x must be a finite number in \(0, 1\); got {value!r}"):
        check_number("x", value, 0, 1, strict=True)
    assert check_number("x", 0.5, 0, 1, strict=True) == 0.5


def test_pass_rates_become_floats_of_their_own() -> None:
    given = np.array([0.0, 1.0])
    rates = check_pass_rates(given)
    given[0] = 0.5
    assert rates.tolist() == [0, 1]
    assert check_pass_rates([[0, 1]]).dtype == np.float64
    assert check_pass_rates(np.float32(0.5)).shape == ()
    assert check_pass_rates([]).size == 0


def test_the_first_wrong_pass_rate_is_quoted_with_its_place() -> None:
    with pytest.raises(InputError) as caught:
        check_pass_rates([0.1, 1.25, -3.0, 0.2])
    assert str(caught.value) == (
        "pass_rates must lie in [0, 1]; got 1.25 at position 1 (2 of 4 outside). Drop these prompts or mend their rates"
    )
    with pytest.raises(InputError, match=r"rates must lie in \[0, 1\]; got nan at position \(1, 0\) \(1 of 4 outside"):
        check_pass_rates([[0.1, 0.2], [math.nan, 0.3]], "rates")
    with pytest.raises(InputError, match=r"got 2\.0 \(1 of 1 outside"):
        check_pass_rates(2)


@pytest.mark.parametrize("value", ["0.5", ["0.1", "0.2"], [0.1, "x"], [[0.1], [0.2, 0.3]], {"p": 0.1}, 1j])
def test_what_are_no_pass_rates_is_quoted(value: Any) -> None:
    with pytest.raises(InputError, match=r"pass_rates must be numbers in \[0, 1\]; got ") as caught:
        check_pass_rates(value)
    assert str(caught.value).endswith(f"got {value!r}")


def test_unknown_names_come_with_the_nearest_and_the_known() -> None:
    message = "unknown rule 'positiv'; did you mean 'positive'? Known: balance, positive"
    assert str(unknown_name("rule", "positiv", ["positive", "balance"])) == message
    assert str(unknown_name("rule", "xyz", {"positive": 1})) == "unknown rule 'xyz'; known: positive"
    assert str(unknown_name("key", 3, ("a",))) == "unknown key 3; known: a"


def test_an_unknown_name_stands_before_its_owner() -> None:
    message = "unknown option 'size' of the preset 'grpo'; known: group_size"
    assert str(unknown_name("option of the preset 'grpo'", "size", ["group_size"])) == message
