# `make` alone lists the targets. `make demo` and `make test` do all the set-up that a fresh machine needs.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow conformance lint clean
VENV := .venv
PYTHON := $(VENV)/bin/python
PYTEST := $(PYTHON) -m pytest -q $(PYTEST_ARGS)
READY := $(VENV)/.ready
DEMO := penstock-demo

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(READY) ## virtual environment, dependencies, Java, Delta's jars

$(READY): pyproject.toml constraints.txt tools/setup
	@bash tools/setup $(VENV)

demo: $(READY) ## a bank in a changefeed: late, doubled, straddling, killed, and exact
	@$(VENV)/bin/penstock demo $(DEMO)

test: $(READY) lint ## every test but the slow ones; tests without Spark first
	$(PYTEST) -n 2 -m "not spark and not slow"
	$(PYTEST) -m "spark and not slow"

test-slow: $(READY) ## real processes: killed at every step, two at once, the README's commands
	$(PYTEST) -m slow

conformance: $(READY) ## the full matrix: round by round, in one batch, file by file in shuffled order, everything twice
	PENSTOCK_MATRIX=full PENSTOCK_EXAMPLES=8 $(PYTEST) -m "spark and not slow" tests/test_conformance_cockroachdb.py tests/test_exact.py

lint: $(READY) ## ruff, mypy strict, the arrows between packages
	$(VENV)/bin/ruff check src tests tools
	$(VENV)/bin/ruff format --check src tests
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

clean: ## remove what the commands made
	rm -rf $(VENV) penstock-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
