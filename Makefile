# Targets for development. `make` without a target lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FUZZ_STAMP := $(VENV)/.fuzz
WORKERS ?= 2
PYTEST_ARGS ?=
KILLS ?= 30
# Folder in which torture, sim, kills and fuzz store seed, commit, command and verdict; EVIDENCE= stores nothing.
EVIDENCE ?= docs/evidence
KEEP := $(if $(EVIDENCE),--evidence $(EVIDENCE))
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/.installed
PEERS_ARGS ?=
PIPELINE_ARGS ?=
# APT=no: nothing is installed with apt, not even as root.
export APT ?= yes

.PHONY: help setup demo check fmt test fuzz kills engines engine chromium postgres zookeeper tools torture sim bench bench-peers bench-pipeline proto docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the pinned tools and this package; does nothing if it is up to date
	@echo 'setup: .venv is ready'

$(STAMP): pyproject.toml lab/pyproject.toml scripts/find_python
	@python="$$(scripts/find_python)"; echo "setup: using $$python"; \
	  [ -x $(BIN)/python ] && $(BIN)/python -c '' 2>/dev/null || "$$python" -m venv --clear $(VENV)
	@echo 'setup: installing the pinned packages into .venv (about half a minute)'
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]' --editable './lab[bench]'
	@touch $@

demo: $(STAMP) ## show jobs that run, fail, and recover from a killed worker: 15 seconds, leaves no files
	@$(BIN)/python -m holdfast_lab.demo

check: $(STAMP) ## check format, lint, types, layers, generated code and generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m scripts.generate_proto --check
	$(BIN)/python -m scripts.generate_docs --check
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/unit/test_layers.py tests/unit/test_repository.py

fmt: $(STAMP) ## format the code and apply the safe fixes of the linter
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: engines check ## run what CI runs: setup, check, the whole test suite (APT=no, WORKERS=2, PYTEST_ARGS=)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(PYTEST_ARGS)

fuzz: $(FUZZ_STAMP) ## test all decoders with malformed input (MINUTES=5 in total; TARGET=name, SEED=n)
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),5) $(if $(TARGET),--target $(TARGET)) $(if $(SEED),--seed $(SEED)) $(KEEP)

# atheris has no wheel for some Python versions; without it, inputs are mutated without coverage guidance.
$(FUZZ_STAMP): $(STAMP)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[fuzz]' || echo 'fuzz: atheris is not available; continuing without coverage guidance'
	@touch $@

kills: $(STAMP) ## kill -9 every role of every topology, and their engines, under load (KILLS=30 each, over an hour; SEED=n)
	KILLS=$(KILLS) SEED=$(SEED) $(BIN)/python -m pytest -p no:cacheprovider -p tests.e2e.kill_evidence $(KEEP) -rP $(PYTEST_ARGS) \
	  tests/e2e/test_server_kills.py tests/e2e/test_schedule_kills.py tests/e2e/test_microservices_kills.py \
	  tests/e2e/test_monolith_kills.py tests/e2e/test_ensemble_kills.py tests/e2e/test_zookeeper_faults.py \
	  tests/e2e/test_pipeline_kills.py

# A missing engine is an error only in CI; elsewhere its tests are skipped.
engines: $(STAMP) ## install the programs that tests need and pip cannot install; needs root and apt
	@$(BIN)/python -m scripts.engines || [ -z "$${CI:-}" ]

engine: ## install a container engine from Debian, as root, for tests/deploy (nothing if installed)
chromium: ## install Debian's Chromium, as root, for tests/browser (nothing if installed)
postgres: ## install Debian's PostgreSQL, as root, for the pipeline's tests; starts no server (nothing if installed)
zookeeper: ## install Debian's ZooKeeper, as root, for the zookeeper topology's tests; starts no server (nothing if installed)
tools: ## install strace, curl and others from Debian, as root, for some tests (nothing if installed)
engine chromium postgres zookeeper tools:
	@"$$(scripts/find_python)" -B -m scripts.engines $@

torture: $(STAMP) ## inject faults into real processes of every topology under load (MINUTES=10 each; TOPOLOGY=, SEED=, FAULTS=all)
	@trap 'exit 130' INT; worst=0; for topology in $(or $(TOPOLOGY),embedded microservices monolith pipeline zookeeper); do \
	  status=0; $(BIN)/holdfast lab torture --topology $$topology --minutes $(or $(MINUTES),10) --faults $(or $(FAULTS),all) \
	    $(if $(SEED),--seed $(SEED)) $(KEEP) || status=$$?; \
	  echo "torture: $$topology: exit status $$status"; \
	  case $$status in 0) ;; 5) [ $$worst -ne 0 ] || worst=5 ;; 130) exit 130 ;; *) worst=$$status ;; esac; \
	done; exit $$worst

sim: $(STAMP) ## run the simulator: SEED=n replays one run, MINUTES=m searches for m minutes
	$(BIN)/python -m holdfast_lab.simulation $(if $(SEED),--seed $(SEED),--minutes $(or $(MINUTES),1)) $(KEEP)

bench: $(STAMP) ## measure throughput, as ratios to a reference of the same run
	$(BIN)/python -m holdfast_lab.bench.throughput

bench-peers: $(PEERS_STAMP) ## compare with other job queues (an hour; PEERS_ARGS=); rewrites docs/benchmarks.*
	$(PEERS)/bin/python -m holdfast_lab.peers --document docs/benchmarks.md --plot docs/benchmarks.svg $(PEERS_ARGS)

bench-pipeline: $(PEERS_STAMP) ## compare the pipeline with Procrastinate on one PostgreSQL (10 minutes; PIPELINE_ARGS=)
	$(PEERS)/bin/python -m holdfast_lab.peers --only holdfast-pipeline procrastinate --rounds 5 --json build/bench-pipeline.json $(PIPELINE_ARGS)

# A separate venv, so that the test suite never needs the other queues.
$(PEERS_STAMP): pyproject.toml lab/pyproject.toml scripts/find_python
	@[ -x $(PEERS)/bin/python ] || "$$(scripts/find_python)" -m venv $(PEERS)
	@echo 'bench-peers: installing the pinned other queues into $(PEERS)'
	@$(PEERS)/bin/python -m pip install -qq --disable-pip-version-check --editable '.[server,pipeline]' --editable './lab[peers]'
	@touch $@

proto: $(STAMP) ## regenerate src/holdfast/proto from proto/*.proto
	$(BIN)/python -m scripts.generate_proto

docs: $(STAMP) ## regenerate the documents that are generated from code
	$(BIN)/python -m scripts.generate_docs

clean: ## remove the venvs and every cache
	rm -rf $(VENV) $(PEERS) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info lab/src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
