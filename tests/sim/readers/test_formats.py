"""Every format of a framework is read with no option, and its counts come out."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from ada_bandit.errors import InputError
from sim.readers import ReadOptions, Selection, read_rollouts
from tests.sim.readers import dumps


@pytest.mark.parametrize("name", dumps.DUMPS)
def test_counts_steps_and_order(name: str, tmp_path: Path) -> None:
    write, form, prompts, steps = dumps.DUMPS[name]
    log = read_rollouts(write(tmp_path))
    assert log.format == form
    assert (log.prompts, log.responses, int(log.correct.sum()), log.unscored) == (
        prompts,
        dumps.RESPONSES,
        dumps.CORRECT,
        0,
    )
    assert log.steps.tolist() == steps
    assert log.lengths.tolist() == [4] * 6
    assert log.correct.tolist() == [2, 0, 4, 3, 0, 4]
    assert log.right is not None
    expected = [bool(value) for step in dumps.RIGHT for right in dumps.RIGHT[step].values() for value in right]
    assert log.right.tolist() == expected


@pytest.mark.parametrize(
    ("name", "total"),
    # Sums over the 24 responses: by number 0 to 3, six of each.
    [
        ("verifiers", 24 * 100 + 6 * 6),
        ("nemo-rl", 6 * (1 + 2 + 3 + 4)),
        ("areal", 24 * 20 + 6 * 6),
        ("tinker-cookbook", 24 * 10 + 6 * 6),
        ("art", 24 * 20),
        ("open-instruct", 24 * 5 + 6 * 6),
        ("inspect", 24 * 40 + 6 * 6),
    ],
)
def test_lengths_in_tokens(name: str, total: int, tmp_path: Path) -> None:
    log = read_rollouts(dumps.DUMPS[name][0](tmp_path))
    assert log.tokens is not None
    assert log.tokens.sum() == total
    assert log.mean_tokens is not None
    np.testing.assert_allclose((log.mean_tokens * log.lengths).sum(), total)


@pytest.mark.parametrize("name", ["verifiers", "skyrl", "open-instruct", "inspect"])
def test_the_last_of_four_was_cut(name: str, tmp_path: Path) -> None:
    log = read_rollouts(dumps.DUMPS[name][0](tmp_path))
    assert log.truncated is not None
    assert log.truncated.reshape(6, 4).tolist() == [[False, False, False, True]] * 6


def test_verl_leaves_out_padding_and_says_so(tmp_path: Path) -> None:
    log = read_rollouts(dumps.verl_v1(tmp_path))
    assert "2 rows left out: their uid begins with pad" in log.notes
    assert log.threshold is not None
    assert log.threshold.value is None, "the column acc decides"
    assert log.rewards is not None
    assert set(log.rewards.tolist()) == {-1.0, 1.0}


def test_verl_validation_is_complete(tmp_path: Path) -> None:
    assert read_rollouts(dumps.verl(tmp_path / "validation", uid=True)).selection is Selection.all
    assert read_rollouts(dumps.verl(tmp_path / "rollout", uid=True)).selection is Selection.trained


def test_verl_without_uid_over_three_steps_interleaved(tmp_path: Path) -> None:
    right = {"x": [1, 0, 0], "y": [0, 1, 1]}
    for step in range(3):
        rows = [
            {
                "input": f"prompt {key}",
                "output": "",
                "gts": "",
                "score": float(right[key][(step + number) % 3]),
                "step": step,
            }
            for number in range(2)
            for key in right
        ]
        dumps.lines(tmp_path / f"{step}.jsonl", rows)
    log = read_rollouts(tmp_path)
    assert log.keys == ("prompt x", "prompt y")
    assert log.step is not None
    assert log.step.tolist() == [0, 0, 1, 1, 2, 2]
    # x draws 1 0, 0 0, 0 1; y draws 0 1, 1 1, 1 0.
    assert log.correct.tolist() == [1, 1, 0, 2, 1, 1]
    assert log.rewards is not None
    assert log.rewards.tolist() == [1, 0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0]


def test_steps_are_in_the_order_of_numbers_and_not_of_names(tmp_path: Path) -> None:
    for step in (2, 10):
        dumps.lines(
            tmp_path / f"{step}.jsonl",
            [{"input": "q", "output": "", "gts": "", "score": float(step == 10), "step": step}],
        )
    assert read_rollouts(tmp_path).correct.tolist() == [0, 1]


def test_trl_sums_rewards_and_lets_accuracy_decide(tmp_path: Path) -> None:
    log = read_rollouts(dumps.trl_text(tmp_path))
    assert log.rewards is not None
    assert set(log.rewards.tolist()) == {0.5, 1.5}
    assert any("'accuracy_reward' decides" in note for note in log.notes)
    assert log.selection is Selection.all
    named = read_rollouts(tmp_path / "completions", ReadOptions(reward="accuracy_reward"))
    assert named.rewards is not None
    assert set(named.rewards.tolist()) == {0.0, 1.0}


def test_trl_of_an_adaptive_run_is_told_as_kept_rows(tmp_path: Path) -> None:
    """The baseline is the pool's mean, 1/8 and 7/8, and the group is balanced: advantages don't average to 0."""
    rows = [
        {"step": 1, "prompt": key, "completion": "", "reward": float(right), "advantage": right - mean}
        for key, mean in (("a", 0.125), ("b", 0.875))
        for right in (1, 0, 1, 0)
    ]
    dumps.lines(tmp_path / "completions_00001.jsonl", rows)
    log = read_rollouts(tmp_path)
    assert log.selection is Selection.kept
    assert log.censored
    assert any("kept of larger pools" in note for note in log.notes)


def test_prime_rl_takes_what_is_uncensored_and_says_what_it_left(tmp_path: Path) -> None:
    log = read_rollouts(dumps.prime_rl(tmp_path))
    assert log.files == 2
    assert "2 files under 'eval' left out in favour of 'train'" in log.notes
    assert "2 files under 'effective' left out in favour of 'all'" in log.notes
    assert log.selection is Selection.all


def test_an_episode_that_failed_has_no_score(tmp_path: Path) -> None:
    rows = [
        {"task": {"key": "a"}, "ok": ok, "errors": [], "traces": [{"rewards": {"r": {"score": 1.0, "weight": 2.0}}}]}
        for ok in (True, False, True)
    ]
    rows.append({"task": {"key": "a"}, "ok": True, "errors": [], "traces": [{"rewards": {"r": {"score": 0.0}}}]})
    dumps.lines(tmp_path / "traces.jsonl", rows)
    log = read_rollouts(tmp_path / "traces.jsonl")
    assert (log.responses, log.unscored, int(log.correct.sum())) == (4, 1, 2)
    assert "1 response without a score, 1 of them because of an error" in log.notes
    assert log.rewards is not None
    np.testing.assert_array_equal(log.rewards, [2.0, np.nan, 2.0, 0.0])


def test_nemo_rl_without_tokens_asks_for_the_group_size(tmp_path: Path) -> None:
    rows = [{"rewards": [float(idx % 3 == 0)], "input_lengths": 9, "idx": idx} for idx in range(8)]
    dumps.lines(tmp_path / "train_data_step5.jsonl", rows)
    with pytest.raises(InputError, match="--rows-per-prompt 16"):
        read_rollouts(tmp_path)
    log = read_rollouts(tmp_path, ReadOptions(group_size=4))
    assert log.lengths.tolist() == [4, 4]
    assert log.correct.tolist() == [2, 1]  # 0, 3 and 6
    assert log.steps.tolist() == [5]


def test_nemo_rl_filtered_by_dapo_holds_groups_with_signal(tmp_path: Path) -> None:
    path = dumps.nemo_rl(tmp_path)
    for file in path.glob("*.jsonl"):
        rows = [json.loads(line) | {"filtered_rewards": 0.0} for line in file.read_text().splitlines()]
        dumps.lines(file, rows)
    log = read_rollouts(path)
    assert log.selection is Selection.signal
    assert log.censored


def test_tinker_reads_training_alone_and_says_so(tmp_path: Path) -> None:
    assert "8 rows left out: their split is not train" in read_rollouts(dumps.tinker(tmp_path)).notes


def test_lm_eval_with_one_response_a_prompt(tmp_path: Path) -> None:
    rows = [
        {
            "doc_id": doc,
            "doc_hash": "",
            "target": "4",
            "resps": [["so"]],
            "filtered_resps": ["4"],
            "filter": name,
            "exact_match": float(doc == 2 or name == "flexible"),
        }
        for doc in range(3)
        for name in ("strict", "flexible")
    ]
    dumps.lines(tmp_path / "samples_gsm8k.jsonl", rows)
    with pytest.raises(InputError, match="--where filter=strict"):
        read_rollouts(tmp_path / "samples_gsm8k.jsonl")
    log = read_rollouts(tmp_path / "samples_gsm8k.jsonl", ReadOptions(where=("filter=strict",)))
    assert log.correct.tolist() == [0, 0, 1]


def test_lm_eval_with_repeats_has_no_scores_for_them(tmp_path: Path) -> None:
    dumps.lines(
        tmp_path / "s.jsonl", [{"doc_id": 0, "resps": [["a", "b", "c"]], "filtered_resps": ["a"], "exact_match": 1.0}]
    )
    with pytest.raises(InputError, match="3 responses a prompt of lm-eval, but one score"):
        read_rollouts(tmp_path / "s.jsonl")


def test_slime(tmp_path: Path) -> None:
    log = read_rollouts(dumps.slime(tmp_path))
    assert log.tokens is not None
    assert log.tokens.sum() == 24 * 7
    assert log.truncated is not None
    assert log.truncated.sum() == 6
    assert log.selection is Selection.trained


class Loud:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    trace = tmp_path / "trace"
    torch.save({"samples": [Loud(trace)]}, tmp_path / "rollout.pt")
    with pytest.raises(InputError, match="objects that run code when they are read aren't opened"):
        read_rollouts(tmp_path / "rollout.pt")
    (tmp_path / "batch.pkl").write_bytes(pickle.dumps(Loud(trace)))
    with pytest.raises(InputError, match="pickled objects"):
        read_rollouts(tmp_path / "batch.pkl")
    assert not trace.exists()
    pickle.loads((tmp_path / "batch.pkl").read_bytes())  # noqa: S301 - it would have left a trace
    assert trace.exists()
