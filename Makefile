# Set-up, demo and tests. Needs python3 (>= 3.11) and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NETWORK := .venv-flower
CLUSTER := .venv-ray

.PHONY: demo docs examples test test-instructions test-slow test-network test-cluster test-wheel lint types check clean

demo: $(READY)
	$(BIN)/sparsona demo

examples: $(READY)
	$(BIN)/python examples/accelerometer.py
	$(BIN)/python examples/heart_disease.py

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow and not network"

# The tests whose numbers come from torch, with two other instruction sets than the machine's own.
NUMERIC := tests/federation tests/methods tests/ops tests/training tests/test_testing.py
test-instructions: $(READY)
	ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest -n 2 -m "not slow and not network and not browser" $(NUMERIC)
	ATEN_CPU_CAPABILITY=avx2 $(BIN)/python -m pytest -n 2 -m "not slow and not network and not browser" $(NUMERIC)

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# Flower lowers some pins, so it has an environment of its own: what it lacks it finds in the first one.
test-network: $(READY)
	if $(MAKE) --no-print-directory $(NETWORK)/.ready; then \
	  timeout --kill-after=30 900 $(NETWORK)/bin/python -m pytest -n 3 --dist loadfile -m network tests/engines/flower; \
	else \
	  echo "SKIPPED: the network tests. Flower could not be installed; pip says why above."; \
	fi

# Ray is large and stays out of the lock: an environment of its own, which finds the rest in the first one.
test-cluster: $(READY)
	if $(MAKE) --no-print-directory $(CLUSTER)/.ready; then \
	  timeout --kill-after=30 420 $(CLUSTER)/bin/python -m pytest --durations=5 -m network tests/engines/test_ray.py tests/many; \
	else \
	  echo "SKIPPED: the tests on a cluster need Ray, which could not be installed (see above)"; \
	fi

# A wheel and an sdist of what git knows, each in an empty environment.
test-wheel: $(READY)
	$(BIN)/python -m pytest -m slow tests/test_wheel.py

# Strictly, and with nothing that a reader would load from elsewhere.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/generate/offline.py build/site

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

$(VENV)/.docs: $(READY) docs/generate/requirements.txt
	$(BIN)/python -m pip install --quiet -r docs/generate/requirements.txt
	touch $@

$(NETWORK)/.ready: EXTRA = flwr>=1.41,<1.42
$(CLUSTER)/.ready: EXTRA = ray>=2.40
$(NETWORK)/.ready $(CLUSTER)/.ready: $(READY)
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' \
	  > "$$($(@D)/bin/python -c 'import site; print(site.getsitepackages()[0])')/first.pth"
	$(@D)/bin/python -m pip install --quiet '$(EXTRA)'
	$(@D)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV) $(NETWORK) $(CLUSTER) build dist .mypy_cache .ruff_cache
