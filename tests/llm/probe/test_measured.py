"""Measured efficiency of a language model whose responses are one token, so that the truth can be enumerated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ada_bandit.class_scores import ClassScores
from llm.config import RunConfig
from llm.models import load_model
from llm.probe.measure import ScoreGradients, run_probe
from llm.rollout import prepare
from llm.types import Response
from tests.enumerable import TEN, Answers, check_agreement
from tests.llm.runs import evens

_PARAMETERS = "last-layer"
_RIGHT = "12345"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> tuple[Answers, Sequence[ClassScores]]:
    """Return every answer with its exact score, and what ten probes keep of sampled ones."""
    pytest.importorskip("torch").set_num_threads(1)
    folder = tmp_path_factory.mktemp("measured")
    file = folder / "evens.py"
    file.write_text(evens(f'return float(text[:1] in "{_RIGHT}" and bool(text))'))
    task = {"kind": "python", "factory": f"{file}:make", "workers": 0, "truncated": "score"}
    model = {"path": str(tiny_model_dir), "device": "cpu"}
    sampler = {"max_new_tokens": 1, "batch_size": 512}

    def config(seed: int) -> RunConfig:
        return RunConfig.model_validate({"model": model, "task": task, "sampler": sampler, "seed": seed})

    rollouts = prepare(config(0), 6)
    gradients = ScoreGradients(load_model(tiny_model_dir), _PARAMETERS)
    tokens = range(gradients.model.config.vocab_size)
    chance, scores = np.zeros((6, len(tokens))), np.zeros((6, len(tokens), gradients.size))
    for prompt, encoded in enumerate(rollouts.encoded):
        for token in tokens:
            response = Response(np.array([token]), np.zeros(1), "", "length")
            scores[prompt, token], logprobs = gradients(encoded, response)
            chance[prompt, token] = np.exp(logprobs[0])
    np.testing.assert_allclose(chance.sum(axis=1), 1, atol=1e-5)
    texts = [rollouts.tokenizer.decode([token], skip_special_tokens=True) for token in tokens]
    right = np.tile([bool(text) and text[:1] in _RIGHT for text in texts], (6, 1))
    # Inner products are all that counts, and these vectors span a small space.
    small = np.linalg.qr(scores.reshape(-1, gradients.size).T).R.T.reshape(6, len(tokens), -1)
    answers = Answers(chance / chance.sum(axis=1, keepdims=True), small, right)
    probes = []
    for seed in range(10):
        out = folder / str(seed)
        out.mkdir()
        found = run_probe(config(seed), out, samples=64, parameters=_PARAMETERS)
        probes.append(found.to_scores().scores)
    return answers, probes


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("name", TEN)
def test_a_probe_measures_what_updates_of_the_model_are(
    measured: tuple[Answers, Sequence[ClassScores]], name: str
) -> None:
    check_agreement(*measured, name)
