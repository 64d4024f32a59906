PYTHON ?= python3
VENV := .venv
# One process a core; tests/conftest.py says which tests share one.
PARALLEL := -n auto --maxprocesses 8 --dist loadscope --no-loadscope-reorder
INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all fast lint clean

demo: $(VENV)/.installed
	$(VENV)/bin/feal run demo

test: lint
	$(VENV)/bin/python -m pytest $(PARALLEL) -m "not nightly" --cov=feal --cov-report=
	@echo "line coverage of src, child processes aside: $$($(VENV)/bin/coverage report --format=total) %"

test-all: test
	$(VENV)/bin/python -m pytest $(PARALLEL) -m nightly

fast: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest $(PARALLEL) -m "not slow and not nightly"

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(INSTALL) -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(INSTALL) -e ".[test]"
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
