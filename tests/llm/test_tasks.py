from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ada_bandit.errors import InputError
from ada_bandit.uniforms import fold_seed
from llm.config import TaskConfig
from llm.digits import problem
from llm.tasks import LoadedTask, load_task
from llm.types import Prompt

FAMILIES: dict[str, dict[str, Any]] = {"chain_sum": {"min_terms": 2, "max_terms": 2}, "gcd": {}, "gsm_symbolic": {}}


def load(**values: Any) -> LoadedTask:
    return load_task(TaskConfig.model_validate(values))


def write_lines(path: Path, rows: Sequence[Any]) -> str:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return str(path)


def write_task(path: Path, body: str) -> str:
    path.write_text(f"from llm.types import Prompt\n\n{body}", encoding="utf-8")
    return f"{path}:make"


# Digits


def test_digits_are_those_of_their_generator_at_any_index() -> None:
    task = load(kind="digits", size=10**7, seed=3)
    assert len(task) == 10**7
    for index in (10**7 - 1, 0, 5):
        made = problem(3, index)
        assert task[index] == Prompt(index, f"{made.family}/3/{index}", made.text, made.answer, made.family)


def test_digits_score_is_equality_without_blanks_around() -> None:
    task = load(kind="digits", families={"add": {}}, size=4)
    prompt = task[2]
    first, second = prompt.text.rstrip("=").split("+")
    right = int(first) + int(second)
    assert [task.score(prompt, text) for text in (f" {right}\n", str(right + 1), f"0{right}", "")] == [1, 0, 0, 0]


def test_digits_take_shares_of_families() -> None:
    task = load(kind="digits", families={"sort": {"weight": 1}}, size=20)
    assert {prompt.family for prompt in (task[index] for index in range(20))} == {"sort"}
    assert task[0].answer == "".join(sorted(task[0].text[1:-1]))


def test_digits_with_many_right_texts_are_scored_by_their_verifier() -> None:
    task = load(kind="digits", families={"residue": {"digits": 1, "least_modulus": 4, "most_modulus": 4}}, size=8)
    for index in range(8):
        remainder = int(task[index].answer.split()[0])
        scores = [task.score(task[index], str(number)) for number in range(12)]
        assert scores == [float(number < 10 and number % 4 == remainder) for number in range(12)]


@pytest.mark.parametrize(
    ("families", "message"),
    [({"ad": {}}, r"'ad'; did you mean 'add'\?"), ({"add": {"wait": 1}}, r"'wait' of .*; did you mean 'weight'\?")],
)
def test_digits_refuse_what_they_do_not_know(families: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(kind="digits", families=families)


# Every task


def test_instruction_stands_around_the_prompt_and_numbers_stay_in_range() -> None:
    task = load(kind="digits", size=2, instruction="{prompt} Think of {x}.")
    assert task[1].text == f"{problem(0, 1).text} Think of {{x}}."
    assert [task[index].id for index in (0, 1)] == [0, 1]
    for index in (2, -1):
        with pytest.raises(IndexError, match=f"prompts 0 to 1; got {index}"):
            task[index]


def test_the_answer_is_looked_for_where_the_config_says() -> None:
    task = load(kind="digits", size=1, answer="tag")
    right = task[0].answer
    assert task.score(task[0], f"{right} so <answer> {right} </answer>") == 1
    assert task.score(task[0], right) == 0


# reasoning-gym


def test_gym_items_are_those_of_the_package_under_the_folded_seed() -> None:
    pytest.importorskip("reasoning_gym")
    from reasoning_gym.factory import create_dataset

    task = load(kind="reasoning-gym", families=FAMILIES, size=10**7, seed=5)
    seed = fold_seed(5, zlib.crc32(b"chain_sum")) % 2**31
    twin = create_dataset("chain_sum", seed=seed, size=10, min_terms=2, max_terms=2)
    for index in (0, 3, 999, 9_999_999):
        item = twin[index]
        assert task[index] == Prompt(index, f"chain_sum/5/{index}", item["question"], item["answer"], "chain_sum")


def test_gym_prompts_are_a_function_of_seed_and_index() -> None:
    pytest.importorskip("reasoning_gym")
    first, again = (load(kind="reasoning-gym", families=FAMILIES, size=5000) for _ in range(2))
    indices = [4999, 1, 0, 2, 1001, 2000]
    backwards = {index: again[index] for index in reversed(indices)}
    assert [first[index] for index in indices] == [backwards[index] for index in indices]
    other = load(kind="reasoning-gym", families=FAMILIES, size=5000, seed=1)
    # Those of gsm_symbolic, which come from a space too large to meet by chance.
    texts = [{task[index].text for index in range(2, 300, 3)} for task in (first, other)]
    assert [len(each) for each in texts] == [100, 100]
    assert not texts[0] & texts[1]


def test_gym_problems_stay_when_families_are_reordered() -> None:
    pytest.importorskip("reasoning_gym")
    task = load(kind="reasoning-gym", families={"gcd": {}, "lcm": {}}, size=10)
    swapped = load(kind="reasoning-gym", families={"lcm": {}, "gcd": {}}, size=10)
    alone = load(kind="reasoning-gym", families={"gcd": {}}, size=10)
    assert [prompt.family for prompt in (task[0], swapped[0])] == ["gcd", "lcm"]
    assert alone[2].text == task[2].text
    assert alone[3].text == swapped[3].text


def test_gym_interleaves_by_weight() -> None:
    pytest.importorskip("reasoning_gym")
    task = load(kind="reasoning-gym", families={"gcd": {"weight": 3}, "lcm": {}, "chain_sum": {"weight": 2}}, size=12)
    # First a turn of each, then of those of weight 2 and more, then of weight 3.
    cycle = ["gcd", "lcm", "chain_sum", "gcd", "chain_sum", "gcd"]
    assert [task[index].family for index in range(12)] == 2 * cycle


def test_gym_scores_are_the_package_s_and_blank_is_wrong() -> None:
    pytest.importorskip("reasoning_gym")
    task = load(kind="reasoning-gym", families={"gcd": {}, "fraction_simplification": {}}, size=4)
    divisor = task[0]
    assert task.score(divisor, f" {divisor.answer}\n") == 1
    # The package gives the answer's share of a longer response that holds it.
    assert task.score(divisor, divisor.answer + "x" * 3 * len(divisor.answer)) == pytest.approx(0.25)
    # It would give a hundredth for no answer.
    assert task.score(task[1], "") == 0
    assert task.score(task[1], " \n") == 0


def test_gym_refuses_a_prompt_that_it_did_not_make() -> None:
    pytest.importorskip("reasoning_gym")
    task = load(kind="reasoning-gym", families={"gcd": {}}, size=2, instruction="Q: {prompt}")
    assert task.score(task[1], task[1].answer) == 1
    with pytest.raises(InputError, match="another problem of 'gcd/0/1' here"):
        task.score(replace(task[1], text="Q: What?"), "1")


def test_gym_families_in_the_order_of_a_set_need_a_fixed_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("reasoning_gym")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(InputError, match=r"'ransom_note'.*PYTHONHASHSEED=0"):
        load(kind="reasoning-gym", families={"ransom_note": {}})
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert load(kind="reasoning-gym", families={"ransom_note": {}}, size=2)[1].family == "ransom_note"


@pytest.mark.parametrize(
    ("families", "message"),
    [
        ({"chain_sums": {}}, r"unknown family 'chain_sums'; did you mean 'chain_sum'\?"),
        ({"chain_sum": {"min_term": 2}}, r"'min_term' of .*; did you mean 'min_terms'\?"),
        ({"chain_sum": {"seed": 2}}, "seed = 2 can't be an option of family 'chain_sum'"),
        ({"chain_sum": {"min_terms": 5, "max_terms": 2}}, "'max_terms': 2.*AssertionError"),
        ({"chain_sum": {"weight": 0}}, "the weight of chain_sum must be a whole number of at least 1; got 0"),
        ({"composite": {}}, "unknown family 'composite'"),
    ],
)
def test_gym_refuses_bad_families(families: dict[str, Any], message: str) -> None:
    pytest.importorskip("reasoning_gym")
    with pytest.raises(InputError, match=message):
        load(kind="reasoning-gym", families=families)


# A file of prompts and answers


def test_lines_are_read_with_their_ids_and_families(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    rows = [
        {"prompt": "6 times 7", "answer": 42, "level": 3},
        "",
        {"prompt": "half", "answer": "1/2", "id": "h", "family": "f"},
    ]
    task = load(kind="jsonl", file=write_lines(tmp_path / "math.jsonl", rows))
    assert task.name == "math"
    assert [task[index] for index in range(len(task))] == [
        Prompt(0, "math/1", "6 times 7", "42", "math"),
        Prompt(1, "h", "half", "1/2", "f"),
    ]


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        ("42", "I find 42.0", "43"),
        ("42.0", r"\boxed{42}", r"\boxed{420}"),
        (r"\frac12", "0.5", "0.25"),
        ("0.5", r"so $\frac{1}{2}$", "2"),
        (r"2\sqrt{3}", r"\boxed{\sqrt{12}}", r"\boxed{2}"),
        ("x^2-1", "$(x-1)(x+1)$", "$(x-1)^2$"),
        ("1,234", "1234", "1"),
        (r"\{1, 2\}", r"\boxed{\{2, 1\}}", r"\boxed{\{1, 3\}}"),
        ("7", "7", "no number here"),
        ("7", "7", ""),
        ("7", "7", r"\boxed{\frac{"),
    ],
)
def test_math_is_compared_as_math(tmp_path: Path, answer: str, right: str, wrong: str) -> None:
    pytest.importorskip("math_verify")
    task = load(kind="jsonl", file=write_lines(tmp_path / "math.jsonl", [{"prompt": "p", "answer": answer}]))
    assert task.score(task[0], right) == 1
    assert task.score(task[0], wrong) == 0


def test_math_in_a_tag_needs_no_dollars(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    file = write_lines(tmp_path / "math.jsonl", [{"prompt": "p", "answer": "2\\sqrt{3}"}])
    task = load(kind="jsonl", file=file, answer="tag")
    assert task.score(task[0], r"2 <answer>\sqrt{12}</answer>") == 1
    assert task.score(task[0], r"$2\sqrt{3}$ <answer>2</answer>") == 0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "'math' is empty; it needs at least one prompt"),
        (["\n\n"], "'math' is empty"),
        (
            [{"prompt": "p", "answer": "1"}, {"prompt": "q", "answer": r"$\frac{$"}],
            r"can't parse the answer '.*frac\{\$' on line 2",
        ),
        ([{"prompt": "p"}], "answer must be a text that isn't blank on line 1 of .*; its keys are prompt"),
        ([{"prompt": " ", "answer": "1"}], "prompt must be a text that isn't blank .*got ' '"),
        ([{"prompt": "p", "answer": True}], "answer must be a text .*got True"),
        (
            [{"prompt": "p", "answer": "1", "id": 7}, {"prompt": "q", "answer": "1", "id": "7"}],
            "id '7' occurs twice on line 2.*line 1",
        ),
        (["{"], "malformed JSON on line 1"),
        (["[1]"], r"line 1 of .* must be an object .*got '\[1\]'"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, rows: list[Any], message: str) -> None:
    pytest.importorskip("math_verify")
    with pytest.raises(InputError, match=message):
        load(kind="jsonl", file=write_lines(tmp_path / "math.jsonl", rows))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.jsonl' can't be read"):
        load(kind="jsonl", file=str(tmp_path / "nowhere.jsonl"))


# A task of the user's own

OWN = """
class Own:
    name = "own"
    def __init__(self, size):
        self.size = size
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        return Prompt(index, f"own/{index % 2}", "say yes", "yes", "own")
    def score(self, prompt, text):
        return float(text == prompt.answer)

def make(size=2):
    return Own(size)
"""


def test_own_task_from_a_file_and_from_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = write_task(tmp_path / "own_task_of_a_test.py", OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    for given_ in (factory, "own_task_of_a_test:make"):
        task = load(kind="python", factory=given_, options={"size": 1}, instruction="Please {prompt}.")
        assert (task.name, len(task)) == ("own", 1)
        assert task[0] == Prompt(0, "own/0", "Please say yes.", "yes", "own")
        # Nothing is taken off a response before a task of the user's own reads it.
        assert [task.score(task[0], text) for text in ("yes", " yes")] == [1, 0]


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        (OWN, {"size": 0}, "the task 'own' is empty"),
        (OWN, {"length": 3}, "'length': 3.*raised TypeError.*length"),
        ("def make():\n    raise OSError('no disk')", {}, "raised OSError: no disk"),
        ("def make():\n    return 3", {}, "returned 3, which is no task: it has no name, __len__, __getitem__, score"),
        ("make = 3", {}, "must name a function; got 3"),
        ("def makes():\n    return 3", {}, r"unknown function 'make' of .*; did you mean 'makes'\?"),
        ("import no_such_module", {}, "can't be imported: ModuleNotFoundError"),
        (
            OWN.replace('return Prompt(index, f"own/{index % 2}", ', "return ("),
            {},
            r"prompt 0 of .* must be an llm.types.Prompt",
        ),
        (OWN.replace('"yes", "own")', '1, "own")'), {}, "prompt 0 of .* whose texts are str; got Prompt"),
    ],
)
def test_bad_own_tasks_are_refused(tmp_path: Path, body: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(kind="python", factory=write_task(tmp_path / "own.py", body), options=options)


def test_own_keys_must_differ(tmp_path: Path) -> None:
    task = load(kind="python", factory=write_task(tmp_path / "own.py", OWN), options={"size": 3})
    assert [task[index].key for index in (0, 1, 0)] == ["own/0", "own/1", "own/0"]
    with pytest.raises(InputError, match=r"prompts 0 and 2 of .* have the same key 'own/0'"):
        task[2]


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("own.make", "must be MODULE:FUNCTION or FILE.py:FUNCTION; got 'own.make'"),
        ("no_such_file.py:make", "'no_such_file.py' of factory .* does not exist"),
        ("no_such_module:make", "can't be imported: ModuleNotFoundError"),
    ],
)
def test_bad_factories_are_refused(factory: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(kind="python", factory=factory)


# The choice of prompts


@pytest.fixture
def log(tmp_path: Path) -> str:
    task = load(kind="digits", size=6)
    rewards: dict[int, list[float | None]] = {
        4: [1, 1, 1, 1],
        1: [0, 0, 0, 1],
        0: [0, 1, None, None],
        2: [0.5, 0, 0, 0],
        3: [None, None],
    }
    rows: list[Any] = [{"prompt_id": task[index].key, "rewards": row} for index, row in rewards.items()]
    return write_lines(tmp_path / "log.jsonl", [*rows, {"prompt_id": "elsewhere/1", "rewards": [1]}])


def test_prompts_are_chosen_by_pass_rate(log: str) -> None:
    whole = load(kind="digits", size=6)
    task = load(kind="digits", size=6, rollouts=log, min_pass_rate=0.25, max_pass_rate=0.5)
    assert list(task.original) == [0, 1]
    assert [task[index] for index in range(len(task))] == [whole[0], whole[1]]
    assert task.notes == (
        f"2 prompts left out: pass rate outside [0.25, 0.5] in '{log}'",
        f"1 prompt left out: not in '{log}'",
        f"1 prompt left out: no response with a score in '{log}'",
        f"1 prompt of '{log}' not in the task",
    )


def test_chosen_prompts_are_numbered_anew_and_keep_their_keys(log: str) -> None:
    whole = load(kind="digits", size=6)
    task = load(kind="digits", size=6, rollouts=log, min_pass_rate=0.5, first=5)
    assert list(task.original) == [0, 4]
    assert task[1] == replace(whole[4], id=1)
    assert task.score(task[1], whole[4].answer) == 1
    assert task.notes[-1] == "first = 5, but no more than 2 prompts are there; all are used"


def test_first_takes_the_first_of_the_chosen(log: str) -> None:
    assert list(load(kind="digits", size=6, rollouts=log, first=2).original) == [0, 1]
    task = load(kind="digits", size=10**7, first=3)
    assert (list(task.original), task.notes) == ([0, 1, 2], ())


def test_no_prompt_in_the_range_is_told_with_the_rates_there_are(log: str) -> None:
    with pytest.raises(
        InputError, match=r"in \[0.6, 0.9\]: those of the 4 prompts .* from 0 to 1, half of them up to 0.375"
    ):
        load(kind="digits", size=6, rollouts=log, min_pass_rate=0.6, max_pass_rate=0.9)


def test_a_log_of_another_task_is_refused(log: str) -> None:
    with pytest.raises(InputError, match=r"of the log's 6 prompts, 0 are the task's. Its keys are such as '.*/1/0'"):
        load(kind="digits", size=6, seed=1, rollouts=log)


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.jsonl' can't be read"):
        load(kind="digits", rollouts=str(tmp_path / "nowhere.jsonl"))
