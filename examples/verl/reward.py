"""The reward of the run: 1 where math-verify finds the boxed answer equal to the ground truth, else 0."""

from typing import Any

from math_verify import parse, verify


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:  # noqa: ARG001
    """Return the reward of one response, as verl's reward workers call it.

    The workers run it outside the main thread, where math-verify's own time limits don't work;
    ``ada.reward_timeout`` limits it instead.
    """
    gold = parse(f"\\boxed{{{ground_truth}}}", parsing_timeout=None)
    answer = parse(solution_str, parsing_timeout=None)
    return float(verify(gold, answer, timeout_seconds=None))
