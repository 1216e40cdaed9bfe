# Set-up, demo and tests. Needs python3 (>= 3.11) and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NETWORK := .venv-flower
NEWER := .venv-flower-newer
CLUSTER := .venv-ray
AGAIN := $(MAKE) --no-print-directory

# What must pass before a change lands. `make check` and .ci/run both run this list, in this order.
# Nothing is run twice to pass: a test that fails now and then is mended.
CHECKS := lint types test test-instructions test-network test-cluster

.DEFAULT_GOAL := help
.PHONY: help demo examples test test-file test-instructions test-slow test-network test-cluster test-wheel coverage \
  docs lint types format check hooks clean

# `make help` prints these lines.
#: make demo                  run every system on handwritten digits and write a report
#: make examples              run the programs in examples/
#:
#: make test                  the test suite
#: make test-file FILE=...    the tests of one file or folder: FILE=tests/training/test_step.py
#: make lint                  ruff: rules and format
#: make types                 mypy --strict
#: make format                let ruff rewrite what it can
#: make check                 all that must pass before a change lands; .ci/run does the same
#:
#: make test-instructions     the numeric tests with two other instruction sets
#: make test-network          a federation on loopback, with Flower and through mailboxes
#: make test-cluster          a cluster of three nodes on loopback, with Ray
#: make test-slow             tests of several minutes each
#: make test-wheel            wheel and sdist, each in an empty environment
#: make coverage              branch coverage of the test suite
#: make docs                  build the documentation into build/site
#:
#: make hooks                 run lint and types before each commit (pre-commit)
#: make clean                 remove the environments and what was built
help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

demo: $(READY)
	$(BIN)/sparsona demo

examples: $(READY)
	$(BIN)/python examples/accelerometer.py
	$(BIN)/python examples/heart_disease.py

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow and not network"

test-file: $(READY)
	$(if $(FILE),,$(error give a file: make test-file FILE=tests/training/test_step.py))
	$(BIN)/python -m pytest $(FILE)

# The tests whose numbers come from torch, with two other instruction sets than the machine's own.
NUMERIC := tests/federation tests/methods tests/ops tests/training tests/test_testing.py
test-instructions: $(READY)
	ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest -n 2 -m "not slow and not network and not browser" $(NUMERIC)
	ATEN_CPU_CAPABILITY=avx2 $(BIN)/python -m pytest -n 2 -m "not slow and not network and not browser" $(NUMERIC)

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# With the newer of the two supported minors of Flower: from the first process to the last, and what is not public.
OF_FLOWER := tests/engines/network/test_deploy.py tests/engines/network/flower
# Flower lowers some pins, so it has an environment of its own: what it lacks it finds in the first one. MLflow and
# Weights & Biases are there too, and stay out of the lock: the tests of `report_to` run beside those of the network.
test-network: $(READY)
	if $(AGAIN) $(NETWORK)/.ready; then \
	  timeout --kill-after=30 2400 $(NETWORK)/bin/python -m pytest -n 3 --dist loadfile -m network tests/engines/network && \
	  $(NETWORK)/bin/python -m pytest tests/report/loggers && \
	  if $(AGAIN) $(NEWER)/.ready; then \
	    timeout --kill-after=30 1200 $(NEWER)/bin/python -m pytest -n 3 --dist loadfile -m network $(OF_FLOWER); \
	  else \
	    echo "SKIPPED: the newer minor of Flower, which could not be installed; pip says why above."; \
	  fi; \
	else \
	  echo "SKIPPED: the tests with Flower, which could not be installed; pip says why above."; \
	  timeout --kill-after=30 2400 $(BIN)/python -m pytest -n 3 --dist loadfile -m network tests/engines/network/mailbox; \
	fi

# Ray is large and stays out of the lock: an environment of its own, which finds the rest in the first one.
test-cluster: $(READY)
	if $(AGAIN) $(CLUSTER)/.ready; then \
	  timeout --kill-after=30 1200 $(CLUSTER)/bin/python -m pytest --durations=5 -m network tests/engines/test_ray.py tests/many; \
	else \
	  echo "SKIPPED: the tests on a cluster need Ray, which could not be installed (see above)"; \
	fi

# A wheel and an sdist of what git knows, each in an empty environment.
test-wheel: $(READY)
	$(BIN)/python -m pytest -m slow tests/test_wheel.py

# Worker processes are not measured: the figure is a lower bound.
coverage: $(READY)
	$(BIN)/python -m pip install --quiet 'pytest-cov>=6'
	$(BIN)/python -m pytest -n 2 -m "not slow and not network" --cov=sparsona --cov-branch --cov-report=term:skip-covered

# Strictly, and with nothing that a reader would load from elsewhere.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/generate/offline.py build/site

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check:
	for target in $(CHECKS); do $(AGAIN) $$target || exit 1; done

hooks: $(READY)
	$(BIN)/python -m pip install --quiet 'pre-commit>=4'
	$(BIN)/pre-commit install

$(READY): pyproject.toml papers/pyproject.toml requirements.txt
	$(PYTHON) -c 'import sys; sys.exit("Sparsona needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable . --editable papers
	touch $@

$(VENV)/.docs: $(READY) docs/generate/requirements.txt
	$(BIN)/python -m pip install --quiet -r docs/generate/requirements.txt
	touch $@

# Beside Flower the servers and clients of the mailboxes that are tested, and the loggers of `report_to`.
$(NETWORK)/.ready: EXTRA = 'flwr==1.41.*' paramiko s3fs 'moto[s3]' flask flask-cors wsgidav cheroot 'webdav4[fsspec]' \
  'mlflow-skinny>=3.5' 'wandb>=0.22'
$(CLUSTER)/.ready: EXTRA = 'ray>=2.40'
$(NETWORK)/.ready $(CLUSTER)/.ready: $(READY)
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' \
	  > "$$($(@D)/bin/python -c 'import site; print(site.getsitepackages()[0])')/first.pth"
	$(@D)/bin/python -m pip install --quiet $(EXTRA)
	$(@D)/bin/python -m pip install --quiet --no-deps --editable . --editable papers
	touch $@

# Without its dependencies, since it asks for a newer certifi than some mirrors have: it finds them in the other one.
$(NEWER)/.ready: $(NETWORK)/.ready
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	for first in $(NETWORK) $(VENV); do $$first/bin/python -c 'import site; print(site.getsitepackages()[0])'; done \
	  > "$$($(@D)/bin/python -c 'import site; print(site.getsitepackages()[0])')/first.pth"
	$(@D)/bin/python -m pip install --quiet --no-deps 'flwr==1.42.*'
	$(@D)/bin/python -m pip install --quiet --no-deps --editable . --editable papers
	touch $@

clean:
	rm -rf $(VENV) $(NETWORK) $(NEWER) $(CLUSTER) build dist .mypy_cache .ruff_cache
