# Everything is set up in .venv inside this folder; nothing outside it is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export ORINPORT_CACHE ?= $(CURDIR)/$(VENV)/cache
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help setup demo test test-all lint docs bench clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo 'orinport needs Python 3.10 or newer; set PYTHON=...' >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo 'python3-venv is missing: apt-get install python3-venv' >&2; exit 2; }

$(STAMP): $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.installed-dev: $(STAMP)
	$(BIN)/python -m pip install -q -e '.[dev,image]'
	@touch $@

$(VENV)/.installed-all: $(VENV)/.installed-dev
	$(BIN)/python tools/install_optional.py
	@touch $@

setup: $(STAMP) ## install orinport into .venv

demo: $(STAMP) ## prepare ResNet-50 and a matrix product for the DLA
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed-all ## run the tests (under 10 minutes)
	$(BIN)/python -m pytest -m 'not slow'

test-all: $(VENV)/.installed-all ## run the slow tests too
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-all ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-dev ## regenerate the pages made from docstrings
	$(BIN)/python tools/write_docs.py

clean: ## remove .venv and what tests and demo wrote
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis
