"""The probe: estimates against closed forms, enumeration and slow twins, and the run on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit import Policy, ScoreModel, bayes_policy
from ada_bandit.errors import InputError
from ada_bandit.fitting import fit_prior
from ada_bandit.laws import law_from_dict
from ada_bandit.programs.scores import read_scores
from ada_bandit.uniforms import fold_seed, uniform
from llm.cli import app
from llm.config import RunConfig
from llm.probe.measure import ScoreGradients, run_probe, score_prompt
from llm.probe.score_model import Check, ValueWithError, geometry, log_slope, summarise
from llm.probe.sums import PromptScores, ScoreSums, Sketch, class_scores
from llm.types import Prompt, Response
from tests.llm.runs import evens

TASK = evens('return float(text.count("1") + text.count("2") > NEEDED)')


def generator(*data: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=fold_seed(0, *data)))


def keep(pos: Iterable[Any], neg: Iterable[Any], unscored: Iterable[Any] = (), size: int = 2) -> PromptScores:
    sums = ScoreSums(size)
    for scores, correct in ((pos, True), (neg, False), (unscored, None)):
        for score in scores:
            sums.add(np.asarray(score, dtype=np.float64), correct)
    return sums.finish(Sketch(size))


def model_scores(
    chance: np.random.Generator, phi: Any, rate: float, noise: tuple[float, float], counts: tuple[int, int]
) -> PromptScores:
    """Draw scores from the model: q phi + noise and -p phi + noise."""
    size = phi.size
    sums = ScoreSums(size)
    for correct, mean, ratio, count in zip((True, False), ((1 - rate) * phi, -rate * phi), noise, counts, strict=True):
        spread = np.sqrt(ratio * float(phi @ phi) / size)
        for score in mean + spread * chance.standard_normal((count, size)):
            sums.add(score, correct)
    return sums.finish(Sketch(size))


def within(value: float, expected: float, error: float, times: float = 4.0) -> bool:
    assert error > 0
    return abs(value - expected) <= times * error


# Estimates of one prompt


def test_estimates_of_a_case_worked_by_hand() -> None:
    # Means (2, 0) and (0, 2); noise energies 2 and 2, of a mean 1 and 1; all scores sum to (4, 4).
    found = geometry([keep([(1, 0), (3, 0)], [(0, 1), (0, 3)])])
    assert found.pass_rate[0] == 0.5
    assert found.pos_noise[0] == pytest.approx(2.0)
    assert found.neg_noise[0] == pytest.approx(2.0)
    assert found.phi_square[0] == pytest.approx(8 - 1 - 1)
    assert found.pos_projection[0] == pytest.approx(4 - 1)
    assert found.neg_projection[0] == pytest.approx(-(4 - 1))
    assert found.mean_square[0] == pytest.approx((32 - 20) / 12)


def test_estimates_equal_means_over_pairs_of_different_responses() -> None:
    chance = generator(1)
    pos, neg, unscored = (chance.standard_normal((count, 5)) + 0.3 for count in (4, 7, 2))
    found = geometry([keep(pos, neg, unscored, size=5)])

    def pairs(first: Any, second: Any, same: bool) -> float:
        return float(
            np.mean([a @ b for (i, a), (j, b) in product(enumerate(first), enumerate(second)) if not same or i != j])
        )

    pp, nn, pn = pairs(pos, pos, same=True), pairs(neg, neg, same=True), pairs(pos, neg, same=False)
    everything = np.concatenate([pos, neg, unscored])
    assert found.phi_square[0] == pytest.approx(pp + nn - 2 * pn)
    assert found.pos_projection[0] == pytest.approx(pp - pn)
    assert found.neg_projection[0] == pytest.approx(pn - nn)
    assert found.mean_square[0] == pytest.approx(pairs(everything, everything, same=True))
    assert found.pos_noise[0] == pytest.approx(np.var(pos, axis=0, ddof=1).sum())
    assert found.neg_noise[0] == pytest.approx(np.var(neg, axis=0, ddof=1).sum())


def test_estimates_are_unbiased_given_the_counts() -> None:
    chance, replications = generator(2), 200
    phi, rate, noise = chance.standard_normal(12), 0.3, (0.5, 2.0)
    square = float(phi @ phi)
    found = geometry([model_scores(chance, phi, rate, noise, (3, 5)) for _ in range(replications)])
    expected = {
        "phi_square": square,
        "pos_projection": 0.7 * square,
        "neg_projection": -0.3 * square,
        "pos_noise": 0.5 * square,
        "neg_noise": 2.0 * square,
    }
    for name, value in expected.items():
        values = getattr(found, name)
        assert within(values.mean(), value, values.std(ddof=1) / np.sqrt(replications)), name
    # The plain square of the difference of means is off by s2_pos / n_pos + s2_neg / n_neg, and would be seen.
    bias = (0.5 / 3 + 2.0 / 5) * square
    assert bias > 8 * found.phi_square.std(ddof=1) / np.sqrt(replications)


def test_a_class_tells_what_its_count_allows() -> None:
    found = geometry([keep([(1, 0)], [(0, 1), (0, 2)]), keep([], [(1, 0)] * 3), keep([], [], [(1, 1)] * 2)])
    assert np.isnan(found.phi_square).all()
    assert np.isnan(found.pos_noise).all()
    assert found.neg_noise[0] == pytest.approx(0.5)
    assert found.neg_noise[1] == 0
    np.testing.assert_array_equal(found.pass_rate, [1 / 3, 0, np.nan])
    assert found.mean_square[1] == 1
    assert found.mean_square[2] == 2


def test_repeated_responses_count_as_often_as_they_came() -> None:
    sums = ScoreSums(2)
    sums.add(np.array([1.0, 2.0]), True, 3)  # noqa: FBT003 - one response of a class, three times
    sums.add(np.array([-1.0, 0.5]), False, 2)  # noqa: FBT003 - likewise
    many = vars(sums.finish(Sketch(2)))
    for name, value in vars(keep([(1, 2)] * 3, [(-1, 0.5)] * 2)).items():
        np.testing.assert_allclose(many[name], value, err_msg=name)


# Many prompts


@pytest.fixture(scope="module")
def model_prompts() -> list[PromptScores]:
    """60 prompts of the model with |phi|^2 = 4, noise ratios 0.2 and 0.8, and a common part of 1/2 of |phi|^2."""
    chance, size = generator(3), 400
    common, prompts = np.zeros(size), []
    common[0] = np.sqrt(2)
    for _ in range(60):
        own = chance.standard_normal(size)
        own[0] = 0
        phi = common + np.sqrt(2) * own / np.linalg.norm(own)
        rate = float(chance.uniform(0.15, 0.85))
        pos = int(chance.binomial(40, rate))
        prompts.append(model_scores(chance, phi, rate, (0.2, 0.8), (pos, 40 - pos)))
    return prompts


def test_the_models_parameters_are_found(model_prompts: list[PromptScores]) -> None:
    found = summarise(model_prompts)
    expected = {
        "phi_square": 4.0,
        "nu_pos": 0.2,
        "nu_neg": 0.8,
        "pos_mean_over_q_phi": 1.0,
        "neg_mean_over_minus_p_phi": 1.0,
        "mean_score_square": 0.0,
        "log_slope_phi_square": 0.0,
        "log_slope_pos_noise": 0.0,
        "log_slope_neg_noise": 0.0,
        "alignment": 0.5,
        "cosine": 0.5,
        "alignment_other_over_same_third": 1.0,
    }
    for name, value in expected.items():
        assert within(found.estimates[name].value, value, found.estimates[name].standard_error), name
    assert {check.verdict for check in found.checks} == {"holds"}
    assert found.cosines.size == 60 * 59 // 2
    assert [third.prompts for third in found.thirds] == [20, 20, 20]


def test_a_model_that_fails_is_told() -> None:
    # |phi|^2 = 4 exp(3 p), and phi of prompts at right angles.
    chance, prompts = generator(4), []
    for number in range(30):
        rate = (number + 1) / 31
        phi = np.zeros(30)
        phi[number] = 2 * np.exp(1.5 * rate)
        pos = min(max(round(30 * rate), 2), 28)
        prompts.append(model_scores(chance, phi, rate, (0.01, 0.01), (pos, 30 - pos)))
    found = summarise(prompts)
    verdicts = {check.assumption.partition(":")[0]: check.verdict for check in found.checks}
    slope = found.estimates["log_slope_phi_square"]
    assert within(slope.value, 3.0, slope.standard_error)
    assert next(verdict for name, verdict in verdicts.items() if name.startswith("|phi|^2")) == "fails"
    assert verdicts["phi has a part common to all prompts"] == "open"


def test_standard_errors_of_means_are_the_usual_ones(model_prompts: list[PromptScores]) -> None:
    found = summarise(model_prompts)
    values = found.geometry.phi_square
    assert found.estimates["phi_square"].standard_error == pytest.approx(values.std(ddof=1) / np.sqrt(values.size))


def test_cosines_of_scores_without_noise_are_those_of_phi() -> None:
    phis = [np.array([1.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, -3.0])]
    prompts = [keep([0.5 * phi] * 2, [-0.5 * phi] * 2, size=3) for phi in phis]
    found = summarise(prompts, ["a", "a", "b"])
    np.testing.assert_allclose(found.cosines, [np.sqrt(0.5), 0, 0], atol=1e-6)
    # <phi_1, phi_2> = 1 is the one pair of a family, whose mean |phi|^2 is 3/2; all pairs: 1 over (3/2 + 5 + 11/2).
    assert found.estimates["alignment_same_family"].value == pytest.approx(2 / 3, rel=1e-6)
    assert found.estimates["alignment"].value == pytest.approx(1 / 12, rel=1e-6)
    assert found.estimates["alignment_other_family"].value == pytest.approx(0, abs=1e-9)
    assert found.estimates["alignment_other_over_same_family"].value == pytest.approx(0, abs=1e-6)
    assert found.noise_ratio == (0, 0)


def test_directions_by_family(model_prompts: list[PromptScores]) -> None:
    # The common part is the same for all, whatever they are called.
    families = ["add" if number % 2 else "sort" for number in range(60)]
    found = summarise(model_prompts, families)
    ratio = found.estimates["alignment_other_over_same_family"]
    assert within(ratio.value, 1.0, ratio.standard_error)
    assert found.checks[-1].assumption.startswith("nor on the family")
    assert found.checks[-1].verdict == "holds"
    # Families of orthogonal directions have nothing in common.
    chance, phis = generator(8), np.eye(2).repeat(10, axis=0) * 3
    prompts = [model_scores(chance, phi, 0.5, (0.01, 0.01), (10, 10)) for phi in phis]
    apart = summarise(prompts, ["a"] * 10 + ["b"] * 10)
    assert apart.estimates["alignment_same_family"].value == pytest.approx(1, abs=0.05)
    assert apart.checks[-1].verdict == "fails"


def test_negative_estimates_are_used() -> None:
    # Means (0, 0) and (0, 0), noise energies 2 and 2: |phi|^2 is estimated as -1 - 1.
    none = keep([(1, 0), (-1, 0)], [(0, 1), (0, -1)])
    strong = keep([(3, 0)] * 2, [(-3, 0)] * 2)
    found = summarise([none, strong])
    assert found.estimates["phi_square"].value == pytest.approx((36 - 2) / 2)
    assert found.estimates["nu_neg"].value == pytest.approx(2 / (36 - 2))
    assert found.counts["negative_phi_square"] == 1
    assert found.cosines.size == 0
    alone = summarise([none])
    assert alone.noise_ratio is None
    told = json.dumps(alone.to_dict(), allow_nan=False)
    assert json.loads(told)["noise_ratio"] is None


def test_what_is_left_out_is_counted() -> None:
    usable = keep([(1, 0), (3, 0)], [(0, 1), (0, 3)])
    one = keep([(1, 0)], [(0, 1), (0, 3)])
    prompts = [usable, one, keep([], [(0, 1)] * 4), keep([(0, 1)] * 4, [], [(1, 0)]), keep([], [], [(0, 1)] * 2)]
    counts = summarise(prompts).counts
    assert counts == {
        "prompts": 5,
        "usable": 1,
        "no_response_scored": 1,
        "no_correct": 1,
        "no_incorrect": 1,
        "single_response_of_a_class": 1,
        "negative_phi_square": 0,
        "responses": 15,
        "correct": 7,
        "unscored": 3,
    }
    with pytest.raises(InputError, match=r"1 had none correct, 1 none incorrect, 1 a single one.*--samples"):
        summarise(prompts[1:])


@pytest.mark.parametrize(
    ("value", "error", "verdict"),
    [(1.0, 0.04, "holds"), (1.0, 0.06, "open"), (1.25, 0.08, "open"), (1.25, 0.07, "fails"), (0.7, 0.09, "fails")],
)
def test_verdicts(value: float, error: float, verdict: str) -> None:
    assert Check("", ValueWithError(value, error), (0.9, 1.1)).verdict == verdict


def test_a_number_without_error_decides_nothing() -> None:
    assert Check("", ValueWithError(1.0, np.nan), (0.9, 1.1)).verdict == "open"


def test_log_slope_of_an_exact_curve() -> None:
    rate = np.linspace(0.1, 0.9, 7)
    assert log_slope(5 * np.exp(-1.7 * rate), rate) == pytest.approx(-1.7, abs=1e-9)


def test_log_slope_takes_negative_values() -> None:
    # Two pass rates: the fit goes through both means, 2 and 6.
    assert log_slope([-1, 5, 4, 8], [0.25, 0.25, 0.75, 0.75]) == pytest.approx(2 * np.log(3), abs=1e-9)
    assert np.isnan(log_slope([-1, -5, 4, 1], [0.25, 0.25, 0.75, 0.75]))
    assert np.isnan(log_slope([1, 2], [0.5, 0.5]))
    assert np.isnan(log_slope([-1, -1, 4, 8], [0.25, 0.25, 0.75, 0.75]))


def test_sketch_keeps_inner_products() -> None:
    size, buckets, pairs = 3000, 256, 600
    sketch = Sketch(size, buckets)
    chance = generator(5)
    z = np.empty(pairs)
    for at in range(pairs):
        x, y = (chance.normal(0, chance.uniform(0.2, 2, size)) for _ in range(2))
        exact = float(x @ y)
        # Variance of a count sketch: collisions of different coordinates alone.
        variance = (float(x @ x) * float(y @ y) + exact**2 - 2 * float((x * x) @ (y * y))) / buckets
        z[at] = (float(sketch(x).astype(np.float64) @ sketch(y)) - exact) / np.sqrt(variance)
    assert not sketch.exact
    assert abs(z.mean()) < 4 / np.sqrt(pairs)
    # The variance of a variance of normal deviates is 2 / n; one fixed sketch has its own, about 2 / buckets more.
    assert abs(z.var() - 1) < 4 * np.sqrt(2 / pairs + 2 / buckets)


def test_products_of_class_sums_are_those_of_the_scores() -> None:
    chance, size, counts = generator(9), 40, ((3, 2), (1, 4), (0, 3))
    drawn = [(chance.standard_normal((pos, size)), chance.standard_normal((neg, size))) for pos, neg in counts]
    found = class_scores([keep(pos, neg, size=size) for pos, neg in drawn])
    pos, neg = (np.array([part[kind].sum(axis=0) for part in drawn]) for kind in (0, 1))
    for name, expected in (("gram_pos", pos @ pos.T), ("gram_cross", pos @ neg.T), ("gram_neg", neg @ neg.T)):
        np.testing.assert_allclose(getattr(found, name), expected, atol=1e-4, err_msg=name)
    np.testing.assert_array_equal(found.pos, [3, 1, 0])
    np.testing.assert_allclose(found.neg_energy, [(part[1] ** 2).sum() for part in drawn])


def test_sketched_sums_have_exact_products_of_one_prompt() -> None:
    sketch, size = Sketch(500, 16), 500
    chance, prompts = generator(10), []
    vectors = chance.standard_normal((2, 2, 3, size))
    for pos, neg in vectors:
        sums = ScoreSums(size)
        for correct, scores in ((True, pos), (False, neg)):
            for score in scores:
                sums.add(score, correct)
        prompts.append(sums.finish(sketch))
    found, total = class_scores(prompts), vectors.sum(axis=2)
    np.testing.assert_allclose(np.diag(found.gram_cross), (total[:, 0] * total[:, 1]).sum(axis=1))
    np.testing.assert_allclose(np.diag(found.gram_pos), (total[:, 0] ** 2).sum(axis=1))
    assert found.gram_pos[0, 1] == pytest.approx(
        float(sketch(total[0, 0]).astype(np.float64) @ sketch(total[1, 0])), rel=1e-5
    )


def test_short_vectors_are_kept_as_they_are() -> None:
    sketch, vector = Sketch(5, 8), np.array([0.0, 1.0, -2.0, 3.5, 1e-3])
    assert sketch.exact
    np.testing.assert_array_equal(sketch(vector), vector.astype(np.float32))


# A policy whose scores can be enumerated


class Softmax:
    """A softmax over answers; the first `right` of them are correct."""

    def __init__(self, logits: Any, right: int) -> None:
        weights = np.exp(logits)
        self.chance, self.right = weights / weights.sum(), right
        self.scores = np.eye(self.chance.size) - self.chance
        self.rate = float(self.chance[:right].sum())
        self.pos = self.chance[:right] @ self.scores[:right] / self.rate
        self.neg = self.chance[right:] @ self.scores[right:] / (1 - self.rate)
        self.phi = self.pos - self.neg

    def energy(self, correct: bool) -> float:
        part = slice(None, self.right) if correct else slice(self.right, None)
        chance, mean = self.chance[part] / self.chance[part].sum(), self.pos if correct else self.neg
        return float(chance @ ((self.scores[part] - mean) ** 2).sum(axis=1))


def softmaxes() -> list[Softmax]:
    chance = generator(6)
    return [Softmax(chance.standard_normal(6), 2) for _ in range(40)]


def test_class_means_are_q_phi_and_minus_p_phi_for_any_policy() -> None:
    for each in softmaxes():
        np.testing.assert_allclose(each.pos, (1 - each.rate) * each.phi, atol=1e-12)
        np.testing.assert_allclose(each.neg, -each.rate * each.phi, atol=1e-12)


def test_noise_ratios_of_enumerable_policies() -> None:
    chance, policies, samples = generator(7), softmaxes(), 120
    prompts = []
    for each in policies:
        sums = ScoreSums(6)
        for answer, count in enumerate(chance.multinomial(samples, each.chance)):
            if count:
                sums.add(each.scores[answer], answer < each.right, int(count))
        prompts.append(sums.finish(Sketch(6)))
    found = summarise(prompts)
    at = found.geometry.usable
    used = [each for each, use in zip(policies, at, strict=True) if use]
    square = sum(float(each.phi @ each.phi) for each in used)
    # Given the policies the only chance is in the sampling, so the error over prompts is more than is needed.
    for name, correct in (("nu_pos", True), ("nu_neg", False)):
        exact = sum(each.energy(correct) for each in used) / square
        assert within(found.estimates[name].value, exact, found.estimates[name].standard_error, 2.0), name
    off = found.geometry.phi_square[at] - [float(each.phi @ each.phi) for each in used]
    assert within(off.mean(), 0.0, off.std(ddof=1) / np.sqrt(off.size))
    for name, value in (("pos_mean_over_q_phi", 1.0), ("neg_mean_over_minus_p_phi", 1.0), ("mean_score_square", 0.0)):
        assert within(found.estimates[name].value, value, found.estimates[name].standard_error), name


def test_bayes_policy_takes_the_json(model_prompts: list[PromptScores]) -> None:
    probe = json.loads(json.dumps(summarise(model_prompts).to_dict(), allow_nan=False))
    law = law_from_dict(probe["prior"])
    policy = bayes_policy(law, ScoreModel(noise_ratio=probe["noise_ratio"]))
    assert isinstance(policy, Policy)
    # The law is the fit to the counts, less the pass rates without weight.
    fitted = fit_prior([each.pos for each in model_prompts], [each.neg for each in model_prompts])
    assert law.mean == pytest.approx(fitted.mean)
    assert law.evidence(3, 5) == pytest.approx(fitted.evidence(3, 5))


# Gradients of a model


@pytest.fixture(scope="module")
def torch() -> Any:
    found = pytest.importorskip("torch")
    found.set_num_threads(1)
    return found


@pytest.fixture
def model(torch: Any, tiny_model_dir: Path) -> Any:
    from llm.models import load_model

    return load_model(tiny_model_dir)


def response(*tokens: int) -> Response:
    return Response(np.array(tokens, dtype=np.int64), np.zeros(len(tokens)), "", "stop")


def slow_gradients(torch: Any, model: Any, prompt: Sequence[int], tokens: Sequence[int], heat: float) -> dict[str, Any]:
    """Backpropagate the log-probability of one token after the other."""
    total: dict[str, Any] = {}
    model.requires_grad_(True)  # noqa: FBT003 - torch's own signature
    for place, token in enumerate(tokens):
        context = torch.tensor([[*prompt, *tokens[:place]]])
        logits = model(input_ids=context).logits[0, -1] / heat
        model.zero_grad()
        torch.log_softmax(logits, -1)[token].backward()
        for name, parameter in model.named_parameters():
            total[name] = total.get(name, 0) + parameter.grad.numpy().astype(np.float64)
    return total


@pytest.mark.torch
@pytest.mark.parametrize("heat", [1.0, 0.7])
def test_gradients_equal_a_loop_over_tokens(torch: Any, model: Any, heat: float) -> None:
    prompt, tokens = [4, 13, 6, 17], [5, 9, 7, 1]
    slow = slow_gradients(torch, model, prompt, tokens, heat)
    every = np.concatenate([value.ravel() for value in slow.values()])
    fast, logprobs = ScoreGradients(model, "all", temperature=heat)(prompt, response(*tokens))
    assert fast.size == every.size == sum(parameter.numel() for parameter in model.parameters())
    np.testing.assert_allclose(fast, every, atol=2e-5 * np.abs(every).max())
    assert logprobs.shape == (4,)
    last = np.concatenate([value.ravel() for name, value in slow.items() if ".layers.1." in name])
    few, _ = ScoreGradients(model, "last-layer", temperature=heat)(prompt, response(*tokens))
    np.testing.assert_allclose(few, last, atol=2e-5 * np.abs(last).max())
    chosen = np.concatenate([value.ravel() for name, value in slow.items() if name.endswith("o_proj.weight")])
    found, _ = ScoreGradients(model, r"o_proj\.weight$", temperature=heat)(prompt, response(*tokens))
    np.testing.assert_allclose(found, chosen, atol=2e-5 * np.abs(chosen).max())


@pytest.mark.torch
def test_lora_gradients_are_projections_of_the_layers_gradients(torch: Any, model: Any) -> None:
    prompt, tokens, rank = [4, 13, 6, 17], [5, 9, 7, 1], 3
    slow = slow_gradients(torch, model, prompt, tokens, 1.0)
    layers = [
        name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and name != "lm_head"
    ]
    assert len(layers) == 2 * 7
    expected = []
    for number, name in enumerate(layers):
        gradient = slow[f"{name}.weight"]
        chance = np.random.Generator(np.random.Philox(key=fold_seed(5, 0x70726F6A, number)))
        down = chance.standard_normal((rank, gradient.shape[1])) / np.sqrt(rank)
        expected.append((gradient @ down.T).ravel())
    every = np.concatenate(expected)
    found, plain = ScoreGradients(model, f"lora:{rank}", seed=5)(prompt, response(*tokens))
    np.testing.assert_allclose(found, every, atol=2e-5 * np.abs(every).max())
    # The hooks are gone, and B = 0 changes no log-probability.
    _, before = ScoreGradients(model)(prompt, response(*tokens))
    np.testing.assert_allclose(plain, before, atol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("no_such", r"'no_such' choose none of the model's .*lora:RANK"),
        ("lora:0", r"'lora:0' choose none"),
        ("(", r"'\(' are no regular expression"),
    ],
)
def test_parameters_that_choose_nothing(model: Any, which: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ScoreGradients(model, which)


@pytest.mark.torch
def test_repeated_responses_change_nothing(model: Any) -> None:
    gradients = ScoreGradients(model, "last-layer")
    sketch = Sketch(gradients.size)
    prompt, encoded = Prompt(0, "a", "", "", "f"), [4, 13, 6]
    responses = [response(*tokens) for tokens in ((5, 1), (7, 1), (5, 1), (6, 8, 1), (5, 1), (7, 1))]
    rewards = np.array([1, 0, 1, 0, np.nan, 0.5])
    record = score_prompt(gradients, sketch, prompt, encoded, responses, rewards)
    sums = ScoreSums(gradients.size)
    for each, reward in zip(responses, rewards, strict=True):
        sums.add(gradients(encoded, each)[0], None if np.isnan(reward) else reward > 0.5)
    expected = vars(sums.finish(sketch))
    for name, value in vars(record.scores).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-9, atol=1e-9, err_msg=name)
    assert (record.scores.pos, record.scores.neg, record.scores.unscored) == (2, 3, 1)
    assert record.tokens == 13


# The run


@pytest.fixture
def make_config(tmp_path: Path, tiny_model_dir: Path) -> Callable[..., RunConfig]:
    def make(needed: int = 1, **changes: Any) -> RunConfig:
        file = tmp_path / "evens.py"
        file.write_text(TASK.replace("NEEDED", str(needed)))
        # The model's weights are random, and it hardly ever ends a response.
        task = {"kind": "python", "factory": f"{file}:make", "workers": 0, "truncated": "score"}
        sampler = {"max_new_tokens": 12, "batch_size": 24}
        model = {"path": str(tiny_model_dir), "device": "cpu"}
        return RunConfig.model_validate({"model": model, "task": task, "sampler": sampler, **changes})

    return make


@pytest.mark.torch
def test_a_probe_that_was_killed_ends_like_one_that_was_not(
    torch: Any, make_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    config = make_config()
    expected = run_probe(config, whole, samples=12, parameters="last-layer")
    done: dict[str, int] = {}

    def progress(what: str, _total: int) -> AbstractContextManager[Callable[[int, str], None]]:
        def advance(step: int, _: str) -> None:
            done[what] = done.get(what, 0) + step
            if done.get("probing") == 3:
                raise KeyboardInterrupt

        return nullcontext(advance)

    with pytest.raises(KeyboardInterrupt):
        run_probe(config, cut, samples=12, parameters="last-layer", progress=progress)
    assert done == {"reading the prompts": 6, "probing": 3}
    assert len(list(cut.glob("prompt-*.npz"))) == 3
    found = run_probe(config, cut, samples=12, parameters="last-layer")
    assert found.to_dict() == expected.to_dict()
    assert found.to_dict()["sampler_max_difference"] < 1e-4
    assert found.notes == ("45 prompts were asked for; the task has 6",)
    with pytest.raises(InputError, match=r"probe of other settings \(seed = 0, now 1\)"):
        run_probe(make_config(seed=1), cut, samples=12, parameters="last-layer")
    with pytest.raises(InputError, match=r"sampler = .*'temperature': 1.0.* now .*'temperature': 0.5"):
        run_probe(
            config.model_copy(update={"sampler": config.sampler.model_copy(update={"temperature": 0.5})}),
            cut,
            samples=12,
            parameters="last-layer",
        )
    (cut / "prompt-00000000.npz").replace(cut / "prompt-00000001.npz")
    with pytest.raises(
        InputError, match=r"prompt-00000001.npz' is of the prompt 'evens/0', where the task has 'evens/1'"
    ):
        run_probe(config, cut, samples=12, parameters="last-layer")
    (cut / "prompt-00000001.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"prompt-00000001.npz' can't be read .*delete it"):
        run_probe(config, cut, samples=12, parameters="last-layer")


@pytest.mark.torch
def test_scores_of_the_tiny_model_average_to_zero(
    torch: Any, make_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    found = run_probe(make_config(), tmp_path, samples=24, parameters="lora:2").summary
    assert found.counts["usable"] >= 3
    for name, value in (("mean_score_square", 0.0), ("pos_mean_over_q_phi", 1.0), ("neg_mean_over_minus_p_phi", 1.0)):
        assert within(found.estimates[name].value, value, found.estimates[name].standard_error), name


def write_task(tmp_path: Path, needed: int) -> Path:
    source = tmp_path / "evens.py"
    source.write_text(TASK.replace("NEEDED", str(needed)))
    task = tmp_path / "task.toml"
    task.write_text(f'kind = "python"\nfactory = "{source}:make"\nworkers = 0\ntruncated = "score"\n')
    return task


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["probe", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.torch
def test_command_writes_json_and_figure(torch: Any, tmp_path: Path, tiny_model_dir: Path) -> None:
    out, task = tmp_path / "out", write_task(tmp_path, 1)
    options = ("--task", task, "--samples", "16", "--max-new-tokens", "12", "--parameters", "last-layer", "--out", out)
    done = run(tiny_model_dir, *options)
    assert done.exit_code == 0, done.output
    assert {"probe.json", "probe.png", "probe.svg", "settings.json"} <= {path.name for path in out.iterdir()}
    told = json.loads((out / "probe.json").read_text())
    assert told["counts"]["prompts"] == 6
    assert told["counts"]["responses"] == 6 * 16
    assert [row["pos"] + row["neg"] for row in told["prompts"]] == [16] * 6
    bayes_policy(law_from_dict(told["prior"]), ScoreModel(noise_ratio=told["noise_ratio"]))
    probed = read_scores(out / "scores.npz")
    assert [row["pos"] for row in told["prompts"]] == probed.scores.pos.tolist()
    assert list(probed.noise_ratio or ()) == told["noise_ratio"]
    assert probed.overlap == told["estimates"]["alignment"]["value"]
    assert probed.prior == law_from_dict(told["prior"])
    assert probed.keys[1] == "evens/1"
    assert len(probed.refuted) == sum(check["verdict"] == "fails" for check in told["checks"])
    assert set(probed.families) == {"even", "odd"}
    assert float(probed.tokens @ np.full(6, 16)) == pytest.approx(told["counts"]["tokens"])
    for text in ("noise_ratio = (", "|phi|^2", "verdict", "the task has 6"):
        assert text in done.output
    again = run(tiny_model_dir, *options, "--json", "--no-figures")
    repeated = json.loads(again.stdout)
    assert repeated["noise_ratio"] == told["noise_ratio"]


@pytest.mark.torch
def test_command_without_a_usable_prompt(torch: Any, tmp_path: Path, tiny_model_dir: Path) -> None:
    options = ("--samples", "4", "--max-new-tokens", "4", "--parameters", "last-layer", "--out", tmp_path / "out")
    done = run(tiny_model_dir, "--task", write_task(tmp_path, 99), *options)
    assert done.exit_code == 2
    assert "no prompt of 6 has two correct and two incorrect responses" in done.output
    assert "6 had none correct" in done.output
    assert "--samples" in done.output


def test_command_with_bad_input(tmp_path: Path) -> None:
    task = tmp_path / "task.toml"
    task.write_text('kind = "digits"\nsizes = 4\n')
    for options, message in (
        ((), "by --task FILE or by --config FILE"),
        (("--task", task, "--config", task), "one of them"),
        (("--task", tmp_path / "none.toml"), "does not exist"),
        (("--task", task), "unknown key 'task.sizes'"),
    ):
        done = run(tmp_path, *options, "--out", tmp_path / "out")
        assert done.exit_code == 2, done.output
        assert message in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.torch
def test_command_without_a_model(tmp_path: Path) -> None:
    task = tmp_path / "task.toml"
    task.write_text('kind = "digits"\n')
    done = run(tmp_path / "no-model", "--task", task, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "the model directory" in done.output


def test_sketch_is_made_of_the_counter_based_uniforms() -> None:
    sketch, size, buckets = Sketch(50, 8), 50, 8
    for at in (0, 17, 49):
        unit = np.zeros(size)
        unit[at] = 1
        bucket = int(uniform(0, 2**20, 0, at) * buckets)
        expected = np.zeros(buckets)
        expected[bucket] = -1 if uniform(0, 2**20 + 1, 0, at) < 0.5 else 1
        np.testing.assert_array_equal(sketch(unit), expected)
