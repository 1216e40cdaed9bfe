# Set-up, demo and tests. Needs python3 (>= 3.11) and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo examples test test-instructions test-slow lint types check clean

demo: $(READY)
	$(BIN)/sparsona demo

examples: $(READY)
	$(BIN)/python examples/accelerometer.py
	$(BIN)/python examples/heart_disease.py

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow"

# The tests whose numbers come from torch, with two other instruction sets than the machine's own.
NUMERIC := tests/federation tests/methods tests/ops tests/training tests/test_testing.py
test-instructions: $(READY)
	ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest -n 2 -m "not slow and not network and not browser" $(NUMERIC)
	ATEN_CPU_CAPABILITY=avx2 $(BIN)/python -m pytest -n 2 -m "not slow and not network and not browser" $(NUMERIC)

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

check: lint types test test-instructions

$(READY): pyproject.toml requirements.txt
	$(PYTHON) -c 'import sys; sys.exit("Sparsona needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache
