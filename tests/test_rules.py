"""Exit rules against truth tables and independent definitions."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from ada_bandit.budgets import Rounds
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze
from ada_bandit.laws import Beta, Grid, Law, Mixture
from ada_bandit.policy import Policy
from ada_bandit.rules import (
    AllOf,
    AnyOf,
    Balance,
    ConfidenceSequence,
    ExitRule,
    Interval,
    MeanBetween,
    Never,
    Not,
    Positive,
    Posterior,
    Quota,
    UserRule,
    exit_rule,
    rule_from_dict,
    rule_names,
)
from tests import naive

Counts = npt.NDArray[np.int64]
POS, NEG = np.indices((26, 26))
CELLS = [(int(k), int(m)) for k, m in zip(POS.ravel(), NEG.ravel(), strict=True)]


def picture(rule: ExitRule, size: int = 5) -> list[str]:
    """Draw where a rule holds: a row for each count of positives, upwards; negatives to the right."""
    held = rule.holds(*np.indices((size, size)))
    return ["".join("+" if cell else "." for cell in row) for row in held[::-1]]


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        (Never(), [".....", ".....", ".....", ".....", "....."]),
        (Positive(), ["+++++", "+++++", "+++++", "+++++", "....."]),
        (Positive(3), ["+++++", "+++++", ".....", ".....", "....."]),
        (Quota(2, 1), [".++++", ".++++", ".++++", ".....", "....."]),
        (Quota(0, 3), ["...++", "...++", "...++", "...++", "...++"]),
        (Balance(4), ["..+++", "..+++", "..+++", ".....", "....."]),
        (Balance(3), ["..+++", "..+++", "..+++", "..+++", "....."]),
        (Balance(1), [".++++", ".++++", ".++++", ".++++", ".++++"]),
        (MeanBetween(0.25, 0.5), ["....+", "...++", "..+++", ".+++.", "....."]),
        (MeanBetween(0.0, 1 / 3), [".....", ".....", "....+", "..+++", ".++++"]),
        (~Positive(3), [".....", ".....", "+++++", "+++++", "+++++"]),
        (Positive(3) & ~Quota(0, 2), ["++...", "++...", ".....", ".....", "....."]),
        (Positive(4) | Quota(0, 4), ["+++++", "....+", "....+", "....+", "....+"]),
    ],
)
def test_where_a_rule_holds(rule: ExitRule, rows: list[str]) -> None:
    assert picture(rule) == rows


RULES: list[ExitRule] = [Never(), Positive(2), Quota(1, 2), Balance(5), ~Positive(4), Interval(0.6)]


@given(a=st.sampled_from(RULES), b=st.sampled_from(RULES), c=st.sampled_from(RULES))
def test_combinations_follow_boolean_algebra(a: ExitRule, b: ExitRule, c: ExitRule) -> None:
    def holds(rule: ExitRule) -> npt.NDArray[np.bool_]:
        return rule.holds(POS, NEG)

    np.testing.assert_array_equal(holds(a & b), holds(a) & holds(b))
    np.testing.assert_array_equal(holds(a | b), holds(a) | holds(b))
    np.testing.assert_array_equal(holds(~a), ~holds(a))
    np.testing.assert_array_equal(holds(~(a & b) | c), ~(holds(a) & holds(b)) | holds(c))


def test_combinations_are_flat_and_double_negation_vanishes() -> None:
    a, b, c = Positive(1), Quota(1, 2), Balance(4)
    assert (a & b) & c == a & (b & c) == AllOf((a, b, c))
    assert (a | b) | c == a | (b | c) == AnyOf((a, b, c))
    assert a & (b | c) == AllOf((a, AnyOf((b, c))))
    assert ~~a is a
    assert ~a == Not(a)


@pytest.mark.parametrize(
    ("pos", "neg", "low", "high"),
    # Wilson's interval at 95 %, as tables print it.
    [(5, 5, 0.2366, 0.7634), (0, 10, 0.0000, 0.2775), (1, 9, 0.0179, 0.4042), (81, 182, 0.2553, 0.3662)],
)
def test_interval_at_printed_values(pos: int, neg: int, low: float, high: float) -> None:
    cell = np.array([pos]), np.array([neg])
    assert Interval(high - low + 2e-4).holds(*cell)[0]
    assert not Interval(high - low - 2e-4).holds(*cell)[0]


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_interval_is_wilsons(confidence: float) -> None:
    z = stats.norm.ppf(1 - (1 - confidence) / 2)
    widths = np.array([1.0 if k + m == 0 else np.diff(naive.wilson(k, m, z))[0] for k, m in CELLS]).reshape(POS.shape)
    for width in (0.2, 0.35, 0.5, 0.8):
        np.testing.assert_array_equal(Interval(width, confidence).holds(POS, NEG), widths <= width)


def confidence_set(pos: int, neg: int, alpha: float) -> tuple[float, float]:
    """Return the ends of {p : B(1+pos, 1+neg) / (p^pos q^neg) < 1/alpha}, by root finding on both sides of the mean."""

    def log_evidence(p: float) -> float:
        choices = math.log(math.comb(pos + neg, pos) * (pos + neg + 1))
        return -choices - pos * math.log(p) - neg * math.log1p(-p) + math.log(alpha)

    if pos + neg == 0:
        return 0.0, 1.0
    mean, tiny = pos / (pos + neg), 1e-15
    inner = min(max(mean, tiny), 1 - tiny)
    low = optimize.brentq(log_evidence, tiny, inner, xtol=1e-14) if pos else 0.0
    high = optimize.brentq(log_evidence, inner, 1 - tiny, xtol=1e-14) if neg else 1.0
    return low, high


@pytest.mark.parametrize("alpha", [0.05, 0.3])
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.7), (0.0, 0.5), (0.4, 1.0), (0.05, 0.1), (0.0, 1.0)])
def test_confidence_sequence_holds_when_its_set_is_on_one_side(low: float, high: float, alpha: float) -> None:
    held = ConfidenceSequence(low, high, alpha).holds(POS, NEG)
    kinds = set()
    for pos, neg in CELLS:
        lower, upper = confidence_set(pos, neg, alpha)
        inside = low <= lower and upper <= high
        outside = upper < low or lower > high
        assert held[pos, neg] == (inside or outside), (pos, neg)
        kinds.add((inside, outside))
    assert len(kinds) >= 2 or (low, high) == (0.0, 1.0)


def test_confidence_sequence_by_hand() -> None:
    # No success in m: the set ends where (m + 1) q^m = alpha; at q = 1/2, 8/128 > 0.05 > 9/256.
    rule = ConfidenceSequence(0.0, 0.5, alpha=0.05)
    np.testing.assert_array_equal(rule.holds(np.zeros(3, int), np.array([6, 7, 8])), [False, False, True])


@pytest.mark.parametrize(("p", "correct_side"), [(0.3, "below"), (0.299, "below"), (0.301, "above"), (0.35, "above")])
def test_confidence_sequence_errs_at_most_alpha(p: float, correct_side: str) -> None:
    rule = ConfidenceSequence(0.3, 1.0, alpha=0.1)
    law = analyze(Policy(rule, Rounds(1, 300), group_size=1), p).exit_law
    held = rule.holds(*np.indices((301, 301)))
    wrong = sum(
        float(chance)
        for (k, m), chance in law.items()
        if held[k, m] and (k / (k + m) > 0.3) == (correct_side == "below")
    )
    assert 0 < wrong <= 0.1


@pytest.mark.parametrize("prior", [Beta(1, 1), Beta(0.5, 4)])
def test_posterior_under_a_beta_prior(prior: Beta) -> None:
    held = Posterior(0.2, 0.6, mass=0.9, prior=prior).holds(POS, NEG)
    for pos, neg in CELLS:
        posterior = stats.beta(prior.a + pos, prior.b + neg)
        inside = posterior.cdf(0.6) - posterior.cdf(0.2)
        assert held[pos, neg] == (inside >= 0.9 or inside <= 0.1), (pos, neg)
    assert held.any()
    assert not held.all()


def mass_by_sums(atoms: list[float], weights: list[float], pos: int, neg: int) -> float:
    """Return the posterior share of the atoms in [0.2, 0.6]; NaN where the counts are impossible."""
    joint = [w * p**pos * (1 - p) ** neg for w, p in zip(weights, atoms, strict=True)]
    inside = sum(j for j, p in zip(joint, atoms, strict=True) if 0.2 <= p <= 0.6)
    return inside / sum(joint) if sum(joint) else math.nan


def test_posterior_under_a_grid_and_a_mixture_of_grids() -> None:
    atoms, weights = [0.0, 0.1, 0.2, 0.5, 0.6, 0.9], [0.2, 0.1, 0.2, 0.1, 0.3, 0.1]
    grid = Grid(np.array(atoms), np.array(weights))
    # The same law in two parts.
    even = Grid(np.array(atoms[::2]), np.array(weights[::2]))
    odd = Grid(np.array(atoms[1::2]), np.array(weights[1::2]))
    mixture = Mixture((even, odd), (sum(weights[::2]), sum(weights[1::2])))
    for prior in (grid, mixture):
        held = Posterior(0.2, 0.6, mass=0.8, prior=prior).holds(POS, NEG)
        for pos, neg in CELLS:
            inside = mass_by_sums(atoms, weights, pos, neg)
            assert held[pos, neg] == (inside >= 0.8 or inside <= 1 - 0.8), (pos, neg)


def test_posterior_under_a_mixture_of_betas() -> None:
    prior = Mixture((Beta(1, 9), Beta(9, 1)), (0.7, 0.3))
    held = Posterior(0.0, 0.5, mass=0.97, prior=prior).holds(POS, NEG)
    q = (np.arange(20_000) + 0.5) / 20_000
    density = 0.7 * stats.beta.pdf(q, 1, 9) + 0.3 * stats.beta.pdf(q, 9, 1)
    for pos, neg in CELLS:
        joint = density * q**pos * (1 - q) ** neg
        inside = joint[q < 0.5].sum() / joint.sum()
        if min(abs(inside - 0.97), abs(inside - 0.03)) > 1e-4:
            assert held[pos, neg] == (inside >= 0.97 or inside <= 0.03), (pos, neg)


def test_posterior_under_a_law_of_ones_own() -> None:
    class Uniformly(Beta):
        """A subclass that the rule knows nothing of but its methods."""

    class Own(Law):
        quadrature = Uniformly.quadrature
        quantile = Uniformly.quantile
        log_evidence = Uniformly.log_evidence
        to_dict = Uniformly.to_dict

        def probability(self, low: float, high: float) -> float:
            return Beta(2, 3).probability(low, high)

        def posterior(self, pos: int, neg: int) -> Law:
            return Beta(2 + pos, 3 + neg)

    ours, theirs = Posterior(0.2, 0.6, prior=Own()), Posterior(0.2, 0.6, prior=Beta(2, 3))
    np.testing.assert_array_equal(ours.holds(POS, NEG), theirs.holds(POS, NEG))


@pytest.mark.parametrize(
    "prior",
    [
        Grid(np.array([0.1, 0.9]), np.array([1.0, 0.0])),
        Grid(np.array([0.1, 0.8])),
        Mixture((Beta(1, 1), Beta(2, 2)), (1, 1)),
        Mixture((Grid(np.array([0.1])), Beta(1, 3)), (1, 1)),
    ],
)
def test_posterior_survives_long_pools(prior: Law) -> None:
    # The chance of such a sequence, 1e-500 and less, is no float.
    held = Posterior(0.0, 0.5, prior=prior).holds(np.array([400]), np.array([3600]))
    assert held[0]


def test_impossible_counts_never_resolve() -> None:
    prior = Grid(np.array([0.0, 1.0]))
    np.testing.assert_array_equal(
        Posterior(0.5, 1.0, prior=prior).holds(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])),
        [False, True, True, False],
    )


def test_user_rule_with_options() -> None:
    @exit_rule
    def streak(pos: Counts, neg: Counts, *, length: int = 3) -> npt.NDArray[np.bool_]:
        return np.asarray((pos >= length) & (neg == 0) | (neg >= length) & (pos == 0))

    assert picture(streak) == ["+....", "+....", ".....", ".....", "...++"]
    assert picture(streak.with_options(length=4)) == ["+....", ".....", ".....", ".....", "....+"]
    own = {"streak": streak}
    assert rule_from_dict("streak", own) == streak
    assert rule_from_dict({"name": "streak", "length": 4}, own) == streak.with_options(length=4)
    assert streak.with_options(length=4).to_dict() == {"name": "streak", "length": 4}
    assert "streak" in rule_names(own)
    # Who isn't handed the rule does not know it.
    assert "streak" not in rule_names()
    with pytest.raises(InputError, match="unknown rule 'streak'"):
        rule_from_dict("streak")
    with pytest.raises(InputError, match=r"option 'lenght' of the rule 'streak'; did you mean 'length'\?"):
        rule_from_dict({"name": "streak", "lenght": 4}, own)


def test_two_rules_of_one_name_both_keep_working() -> None:
    def define(count: int) -> UserRule:
        @exit_rule
        def redefined(pos: Counts, neg: Counts) -> npt.NDArray[np.bool_]:
            return pos >= count

        return redefined

    first, second = define(1), define(2)
    assert first != second
    assert first.name == second.name == "redefined"
    for rule, twin in ((first, Positive(1)), (second, Positive(2))):
        assert picture(rule) == picture(twin)
        assert picture(rule_from_dict("redefined", {"redefined": rule})) == picture(twin)
        policy = Policy(rule, Rounds(4, 2), group_size=2)
        np.testing.assert_array_equal(policy.tables.draws, replace(policy, rule=twin).tables.draws)


def test_rates_of_the_empty_cell_do_not_warn() -> None:
    @exit_rule
    def steep(pos: Counts, neg: Counts) -> npt.NDArray[np.bool_]:
        return np.asarray(pos / (pos + neg) > 0.5)

    assert not steep.holds(POS, NEG)[0, 0]


def scalar(pos: Counts, neg: Counts) -> Any:
    return True


def flat(pos: Counts, neg: Counts) -> Any:
    return pos.ravel() > 0


def counts(pos: Counts, neg: Counts) -> Any:
    return np.minimum(pos, 1)


def with_and(pos: Counts, neg: Counts) -> Any:
    return pos >= 1 and neg >= 1


def with_if(pos: Counts, neg: Counts) -> Any:
    return pos > 1 if neg.any() and pos > neg else neg > 1


def undefined(pos: Counts, neg: Counts) -> Any:
    return nothing(pos, neg)  # type: ignore[name-defined]  # noqa: F821 - what is tested


BAD: list[tuple[Callable[..., Any], str]] = [
    (scalar, r"'scalar' returned shape \(\) for counts of shape \(9, 9\); write it elementwise"),
    (flat, r"'flat' returned shape \(81,\) for counts of shape \(9, 9\); write it elementwise"),
    (with_and, r"'with_and' raised ValueError: .*; write it elementwise in \(pos, neg\), with & \| ~"),
    (with_if, r"'with_if' raised ValueError: .*; write it elementwise"),
    (undefined, r"'undefined' raised NameError: name 'nothing' is not defined"),
    (counts, "'counts' returned int64 values; it must return booleans, such as pos >= 2"),
]


@pytest.mark.parametrize("hide", [lambda r: r, lambda r: ~r, lambda r: Never() & r, lambda r: r | ~Never()])
@pytest.mark.parametrize(("function", "message"), BAD)
def test_misbehaved_user_rules_are_named(
    function: Callable[..., Any], message: str, hide: Callable[[ExitRule], ExitRule]
) -> None:
    policy = Policy(hide(exit_rule(function)), Rounds(4, 2), group_size=1)
    with pytest.raises(InputError, match=message):
        _ = policy.tables


def test_what_can_not_be_a_user_rule() -> None:
    def positive(pos: Counts, neg: Counts) -> Any:
        return pos > 0

    with pytest.raises(InputError, match=r"'positive' is a built-in rule; give your function another name"):
        exit_rule(positive)
    with pytest.raises(InputError, match=r"takes a named function of \(pos, neg\); got 3"):
        exit_rule(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"got <function .*positive.*Mark your own function with @exit_rule"):
        _ = Positive() & positive  # type: ignore[operator]
    with pytest.raises(InputError, match=r"got the function <function .*positive.*Mark it with @exit_rule"):
        Policy(positive, Rounds(4), group_size=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Positive(0), "count must be a whole number of at least 1; got 0"),
        (lambda: Positive(1.0), r"count must be a whole number of at least 1; got 1\.0"),  # type: ignore[arg-type]
        (lambda: Positive(count=True), "count must be a whole number of at least 1; got True"),
        (lambda: Quota(-1, 2), "positives must be a whole number of at least 0; got -1"),
        (lambda: Quota(1, -2), "negatives must be a whole number of at least 0; got -2"),
        (lambda: Balance(0), "group_size must be a whole number of at least 1; got 0"),
        (lambda: MeanBetween(0.5, 0.5), r"low must be below high; got low = 0\.5, high = 0\.5"),
        (lambda: MeanBetween(-0.1, 0.5), r"low must be a finite number in \[0, 1\]; got -0\.1"),
        (lambda: Interval(0), r"width must be a finite number in \(0, 1\); got 0"),
        (lambda: Interval(1.5), r"width must be a finite number in \(0, 1\); got 1\.5"),
        (lambda: Interval(0.5, 1), r"confidence must be a finite number in \(0, 1\); got 1"),
        (lambda: ConfidenceSequence(-0.1, 0.5), r"low must be a finite number in \[0, 1\]; got -0\.1"),
        (lambda: ConfidenceSequence(0.5, 1.1), r"high must be a finite number in \[0, 1\]; got 1\.1"),
        (lambda: ConfidenceSequence(0.5, 0.5), r"low must be below high; got low = 0\.5, high = 0\.5"),
        (lambda: ConfidenceSequence(0.1, 0.5, 0), r"alpha must be a finite number in \(0, 1\); got 0"),
        (lambda: Posterior(0.6, 0.5), r"low must be below high; got low = 0\.6, high = 0\.5"),
        (lambda: Posterior(0, 0.5, mass=0.5), r"mass must be a finite number in \(0\.5, 1\); got 0\.5"),
        (lambda: Posterior(0, 0.5, mass=math.nan), r"mass must be a finite number in \(0\.5, 1\); got nan"),
        (lambda: Posterior(0, 0.5, prior="flat"), "unknown law 'flat'.*[Kk]nown: beta, grid, mixture"),  # type: ignore[arg-type]
        (lambda: AllOf(()), r"needs a list of at least one rule; got \(\)"),
        (lambda: AnyOf("never"), "needs a list of at least one rule; got 'never'"),  # type: ignore[arg-type]
        (lambda: AnyOf(3), "needs a list of at least one rule; got 3"),  # type: ignore[arg-type]
        (lambda: Not("sometimes"), "unknown rule 'sometimes'"),  # type: ignore[arg-type]
    ],
)
def test_values_that_rules_refuse(build: Callable[[], ExitRule], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("balanced", r"unknown rule 'balanced'; did you mean 'balance'\?"),
        ({"name": "quota", "positive": 1, "negatives": 2}, r"key 'positive' of the rule 'quota'; did you mean"),
        ({"name": "quota", "positives": 1}, "the rule 'quota' needs negatives; got"),
        ({"count": 1}, r"must be a name or a table with a name, such as \{name = 'positive', count = 1\}; got"),
        (3, "must be a name or a table with a name.*got 3"),
        ({"name": ["never"]}, r"unknown rule \['never'\]"),
    ],
)
def test_descriptions_that_name_no_rule(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rule_from_dict(data)


def test_numbers_of_numpy_are_kept_as_plain_ones() -> None:
    assert type(Positive(np.int64(2)).count) is int  # type: ignore[arg-type]
    assert type(Interval(np.float64(0.25)).width) is float
    assert Posterior(0, 1 / 2).to_dict()["low"] == 0.0
