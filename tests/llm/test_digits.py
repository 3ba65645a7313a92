from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

from ada_bandit.errors import InputError
from llm.digits import CHARACTERS, WEIGHTS, problem

COUNT = 20_000


def within(count: int, total: int, share: float, errors: float = 5) -> bool:
    return abs(count - total * share) < errors * math.sqrt(total * share * (1 - share))


def test_answers_are_right() -> None:
    for index in range(2_000):
        text, answer, family = problem(3, index)
        asked, equals, rest = text.partition("=")
        assert (equals, rest) == ("=", "")
        if family == "add":
            a, b = asked.split("+")
            assert answer == str(int(a) + int(b))
        elif family == "mod":
            a, b = asked.split("%")
            assert 2 <= int(b) <= 19
            assert answer == str(int(a) - int(b) * (int(a) // int(b)))
        else:
            digits = list(asked.removeprefix("s"))
            assert 3 <= len(digits) <= 6
            # Equal counts of each digit, in an order that never falls: that is what sorted means.
            assert Counter(answer) == Counter(digits)
            assert all(left <= right for left, right in itertools.pairwise(answer))
        assert set(text + answer) <= set(CHARACTERS)


def test_families_have_their_shares() -> None:
    counts = Counter(problem(0, index)[2] for index in range(COUNT))
    assert counts.total() == COUNT
    for family, share in (("add", 0.70), ("sort", 0.15), ("mod", 0.15)):
        assert within(counts[family], COUNT, share)


def test_numbers_have_one_to_three_digits_equally_often() -> None:
    asked = [problem(1, index, {"add": 1})[0] for index in range(COUNT)]
    numbers = [each for text in asked for each in text.removesuffix("=").split("+")]
    # Without leading zeros: a length is that of the number itself.
    assert all(each == str(int(each)) for each in numbers)
    lengths = Counter(map(len, numbers))
    assert set(lengths) == {1, 2, 3}
    assert all(within(lengths[length], 2 * COUNT, 1 / 3) for length in lengths)
    # Of each length every number comes, and none is preferred: 0 to 9 among those of one digit.
    short = Counter(each for each in numbers if len(each) == 1)
    assert all(within(short[str(digit)], lengths[1], 0.1) for digit in range(10))


def test_lengths_to_sort_come_equally_often() -> None:
    lengths = Counter(len(problem(2, index, {"sort": 1})[1]) for index in range(COUNT))
    assert set(lengths) == {3, 4, 5, 6}
    assert all(within(count, COUNT, 0.25) for count in lengths.values())


def test_a_problem_is_a_function_of_seed_and_index() -> None:
    forwards = [problem(7, index) for index in range(50)]
    assert [problem(7, index) for index in reversed(range(50))] == forwards[::-1]
    assert problem(7, 2**62) == problem(7, 2**62)
    # 50 problems in a row that are the same by chance: impossible in practice.
    assert [problem(8, index) for index in range(50)] != forwards


def test_weights_have_any_sum_and_any_order() -> None:
    assert {problem(0, index, {"mod": 3})[2] for index in range(100)} == {"mod"}
    scaled = {"mod": 15, "add": 70, "sort": 15}
    assert [problem(4, index, scaled) for index in range(200)] == [problem(4, index) for index in range(200)]
    assert [problem(4, index, WEIGHTS) for index in range(20)] == [problem(4, index) for index in range(20)]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"ad": 1.0}, "unknown family 'ad'; did you mean 'add'"),
        ({"add": -1.0}, "the weight of add must be a finite number.*-1.0"),
        ({"add": 0.0}, "the sum of the weights must be"),
        ({}, "the sum of the weights must be"),
    ],
)
def test_weights_that_are_refused(weights: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        problem(0, 0, weights)


@pytest.mark.torch
def test_tokenizer_has_a_token_for_each_character() -> None:
    pytest.importorskip("transformers")
    from llm.digits import digit_tokenizer

    tokenizer = digit_tokenizer()
    ids = tokenizer(CHARACTERS)["input_ids"]
    assert len(set(ids)) == len(CHARACTERS)
    assert tokenizer.decode(ids) == CHARACTERS
    # No start token, and the end is text that disappears where special tokens are left out.
    assert tokenizer.bos_token is None
    assert tokenizer.decode([ids[0], tokenizer.eos_token_id], skip_special_tokens=True) == "0"
    assert tokenizer("3a")["input_ids"] == [ids[3], tokenizer.unk_token_id]
    assert len({tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id} - set(ids)) == 3
