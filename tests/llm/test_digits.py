from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

from ada_bandit.errors import InputError
from llm.digits import CHARACTERS, WEIGHTS, Families, is_right, problem

COUNT = 20_000


def within(count: int, total: int, share: float, errors: float = 5) -> bool:
    return abs(count - total * share) < errors * math.sqrt(total * share * (1 - share))


def test_answers_are_right() -> None:
    for index in range(2_000):
        made = problem(3, index)
        text, answer, family = made.text, made.answer, made.family
        assert made.worked == answer
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
    counts = Counter(problem(0, index).family for index in range(COUNT))
    assert counts.total() == COUNT
    for family, share in (("add", 0.70), ("sort", 0.15), ("mod", 0.15)):
        assert within(counts[family], COUNT, share)


def test_numbers_have_one_to_three_digits_equally_often() -> None:
    asked = [problem(1, index, Families({"add": 1})).text for index in range(COUNT)]
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
    lengths = Counter(len(problem(2, index, Families({"sort": 1})).answer) for index in range(COUNT))
    assert set(lengths) == {3, 4, 5, 6}
    assert all(within(count, COUNT, 0.25) for count in lengths.values())


def test_a_problem_is_a_function_of_seed_and_index() -> None:
    forwards = [problem(7, index) for index in range(50)]
    assert [problem(7, index) for index in reversed(range(50))] == forwards[::-1]
    assert problem(7, 2**62) == problem(7, 2**62)
    # 50 problems in a row that are the same by chance: impossible in practice.
    assert [problem(8, index) for index in range(50)] != forwards


def test_weights_have_any_sum_and_any_order() -> None:
    assert {problem(0, index, Families({"mod": 3})).family for index in range(100)} == {"mod"}
    scaled = Families({"mod": 15, "add": 70, "sort": 15})
    assert [problem(4, index, scaled) for index in range(200)] == [problem(4, index) for index in range(200)]
    assert [problem(4, index, Families(WEIGHTS)) for index in range(20)] == [problem(4, index) for index in range(20)]


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
        Families(weights)


@pytest.mark.parametrize(("digits", "least", "most"), [(1, 2, 10), (2, 3, 30), (3, 7, 12)])
def test_right_texts_of_a_remainder_are_all_numbers_that_leave_it(digits: int, least: int, most: int) -> None:
    families = Families({"residue": 1}, digits=digits, least_modulus=least, most_modulus=most)
    seen = set()
    for index in range(300):
        made = problem(5, index, families)
        modulus, remainder = map(int, made.text.strip("%=").split("="))
        seen.add(modulus)
        assert least <= modulus <= most
        assert 0 <= remainder < modulus
        # Every text of up to four digits: right are the numbers of so many digits, without zeros in front.
        texts = [str(number) for number in range(10_000)] + [f"0{number}" for number in range(100)]
        right = {text for text in texts if is_right("residue", made.answer, text)}
        wanted = {t for t in texts if len(t) == digits and t == str(int(t)) and (int(t) - remainder) % modulus == 0}
        assert right == wanted
        assert made.worked in right
    assert seen == set(range(least, most + 1))
    for text in ("", "x", "-7", "1.0", "١٢", "12=", "1 2"):
        assert not is_right("residue", "0 1 2", text)


def test_worked_numbers_of_a_remainder_come_equally_often() -> None:
    families = Families({"residue": 1}, digits=2, least_modulus=9, most_modulus=9)
    made = [problem(6, index, families) for index in range(COUNT)]
    counts = Counter(each.worked for each in made)
    # 10 to 99, each remainder as likely, and each of its ten numbers.
    assert set(counts) == {str(number) for number in range(10, 100)}
    assert all(within(count, COUNT, 1 / 90) for count in counts.values())


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_counting_is_right_if_no_step_is_left_and_the_sum_is_right(digits: int) -> None:
    families = Families({"count": 1}, least_count=2, most_count=5, count_digits=digits)
    above = 10**digits
    for index in range(500):
        made = problem(7, index, families)
        first, rest = made.text.rstrip("=").split("+")
        step, times = map(int, rest.split("s"))
        assert 2 <= times <= 5
        value = (int(first) + times * step) % above
        steps = made.worked.split("=")
        assert [int(each.split("s")[0]) for each in steps] == list(range(times, 0, -1))
        assert [int(each.split("s")[1]) for each in steps] == [
            (int(first) + done * step) % above for done in range(1, times + 1)
        ]
        assert is_right("count", made.answer, made.worked)
        # The scratch work before the last step may be any.
        assert is_right("count", made.answer, f"junk=1s{value}")
        assert not is_right("count", made.answer, f"1s{(value + 1) % above}")
        assert not is_right("count", made.answer, f"2s{value}")
        assert not is_right("count", made.answer, str(value))
        assert len(made.text) + len(made.worked) + 1 <= families.longest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"residue": {"digits": 1, "most_modulus": 11}}, "must not exceed 10, the numbers of 1 digits.*got 11"),
        (
            {"residue": {"least_modulus": 9, "most_modulus": 8}},
            "least_modulus must not exceed most_modulus; got 9 and 8",
        ),
        ({"count": {"least_count": 0}}, "least_count"),
        ({"count": {"digits": 2}}, "option 'digits' of family 'count'"),
    ],
)
def test_sizes_that_are_refused(options: dict[str, dict[str, int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Families.of(options)


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
