# `make demo` and `make check` install what they need and can be run from an empty clone as root.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

KEEL_CACHE ?= $(HOME)/.cache/keel
VENV := $(KEEL_CACHE)/venv-$(shell sed -n "/^dev = /,/^]/p" pyproject.toml | sha256sum | cut -c1-12)
PY := $(VENV)/bin/python
ALL := not slow and not fuzz and not long and not exhaustive
FAST := not lives and $(ALL)

-include netns/lab.mk tests/pki/pki.mk

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/done: pyproject.toml
	@command -v python3 >/dev/null
	tests/venv $(VENV)
	@touch $@

.PHONY: venv
venv: $(VENV)/done ## the pinned Python environment of developers, cached outside the checkout

# Read again and assertions rewritten anew, the tests' modules cost each worker twice the time.
test lives slow coverage kill kill-all fuzz: export PYTHONDONTWRITEBYTECODE :=

.PHONY: test
test: venv ## the fast tests (about a minute): unit, flow, lint of docs
	$(PY) -m pytest -n 2 --dist worksteal -m "$(FAST)" tests

.PHONY: lives
lives: venv ## the flows' tests in which whole nodes live for hours; make coverage has them too
	$(PY) -m pytest -n 2 --dist worksteal -m lives tests

.PHONY: slow
slow: venv ## every flow killed at a few of its effects, and a year in fast motion
	$(PY) -m pytest -n 2 --dist worksteal -m slow tests

.PHONY: coverage
coverage: export PYTHONPATH := tests/startup
coverage: export COVERAGE_RCFILE := $(CURDIR)/tests/coveragerc
coverage: venv ## the tests of test and lives, measured: each line and branch of keel/mesh runs
	rm -rf build/coverage && mkdir -p build/coverage
	COVERAGE_PROCESS_START=$(COVERAGE_RCFILE) $(PY) -m pytest -n 2 --dist worksteal -m "$(ALL)" tests
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage json --quiet
	$(PY) -m tests.covered

.PHONY: kill
kill: venv ## every flow killed at many of its effects; make slow has a few of them
	$(PY) -m pytest -n 2 --dist worksteal -m long tests/flow

.PHONY: kill-all
kill-all: venv ## every flow killed at every one of its effects; takes two hours and more
	$(PY) -m pytest -n 2 --dist worksteal -m exhaustive tests/flow

.PHONY: fuzz
fuzz: venv ## ten thousand generated messages to every door of the channel
	$(PY) -m pytest -n 2 --dist worksteal -m fuzz tests

.PHONY: lint
lint: venv ## ruff, mypy, import contracts, spelling
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache
	$(VENV)/bin/codespell keel tests README.md $(wildcard netns docs)

.PHONY: format
format: venv ## let ruff lay the code out
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
