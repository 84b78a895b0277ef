# Everything is set up in .venv inside this folder; nothing outside it is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH ?= torch>=2.5
export ORINPORT_CACHE ?= $(CURDIR)/$(VENV)/cache
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help setup demo test test-slow test-all lint torch docs clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo 'orinport needs Python 3.10 or newer; set PYTHON=...' >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo 'python3-venv is missing: apt-get install python3-venv' >&2; exit 2; }

$(STAMP): $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.installed-dev: $(STAMP)
	$(BIN)/python -m pip install -q -e '.[dev,fleet,image,tensorrt]'
	@touch $@

$(VENV)/.installed-torch: $(VENV)/.installed-dev
	$(BIN)/python -m pip install -q '$(TORCH)' onnxscript
	@touch $@

setup: $(STAMP) ## install orinport into .venv

demo: $(STAMP) ## prepare ResNet-50 and a matrix product for the DLA
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed-dev ## run the tests (under 10 minutes)
	$(BIN)/python -m pytest -n auto -m 'not slow'

test-slow: $(VENV)/.installed-dev ## run only the slow tests (BUDGET=1500: begin none after that many seconds)
	$(BIN)/python -m pytest -n auto -m slow $(if $(BUDGET),--budget $(BUDGET))

test-all: test test-slow ## run the slow tests too

lint: $(VENV)/.installed-dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

torch: $(VENV)/.installed-torch ## add PyTorch, so that its tests run too (TORCH='torch==2.13.0' picks a version)

docs: $(VENV)/.installed-dev ## regenerate the pages made from docstrings
	$(BIN)/python tools/write_docs.py

clean: ## remove .venv and what tests and demo wrote
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis
