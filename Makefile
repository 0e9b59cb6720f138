PYTHON ?= python3
VERSIONS := 3.11 3.12 3.13
VENV := .venv
BASE := main
BIN := $(VENV)/bin
# Thousands of small programs run once each: where they are compiled, nothing of it is worth keeping. Without fusion
# emitters, which go by way of MLIR, XLA compiles them in three fifths of the time.
# What hundreds of processes import is compiled once, also where the environment says to write no bytecode.
QUICK := XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false" WEFT_COMPILE_CACHE= \
	WEFT_SLOW_COMPILE_SECONDS=60 PYTHONDONTWRITEBYTECODE=

# The tests of a file run in one process, so that what they share is made once; files in the order of tests/conftest.py.
BY_FILE := -n 2 --dist loadfile --no-loadscope-reorder

# What is tested in the compiled tier, too, but for what is compiled anyhow. That single operators compute the same in
# both is among the tests of the interpreter.
CORE := tests/_autograd tests/_lazy tests/_tensor/compile --ignore tests/_lazy/interpreter \
	--ignore tests/_lazy/test_general.py --ignore tests/_autograd/test_hand_written.py

.PHONY: as-torch demo check libraries test test-all test-compiled test-dtensor accelerator native tidy bench scale lint dist docs oracle oracle-quick oracle-all oracle-soak oracle-distributed stubs soak faults clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev,plot]"
	touch $@

$(VENV)/.oracle: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev,plot,oracle]"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@

$(VENV)/.tidy: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[tidy]"
	touch $@

demo: $(VENV)/.installed  ## train a GPT in two processes, kill one, and compare with one process
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed  ## every test that needs no PyTorch: interpreted, and what is about programs, and the core, compiled
	WEFT_TIER=interpreted $(QUICK) $(BIN)/python -m pytest $(BY_FILE)
	WEFT_TIER=compiled $(QUICK) $(BIN)/python -m pytest $(BY_FILE) -m "not (compiled or soak or oracle or faults)" $(CORE)

test-compiled: $(VENV)/.installed  ## the same, all of it compiled
	WEFT_TIER=compiled $(QUICK) $(BIN)/python -m pytest -n 2 --ignore tests/_lazy/interpreter

test-all: $(VERSIONS:%=test-%)  ## the same under each supported version of Python that is here

test-%:
	@if python$* -c "" 2>/dev/null; then $(MAKE) test PYTHON=python$* VENV=.venv-$*; \
	else echo "python$* is not here: nothing is tested under it"; fi

test-dtensor: $(VENV)/.installed  ## every operator on distributed tensors: all placements, meshes of 1, 2, 4 and 2x2; long trainings in stages
	WEFT_DTENSOR_SEEDS=4 WEFT_TIER=interpreted $(QUICK) $(BIN)/python -m pytest -n 2 tests/distributed/tensor tests/distributed/fsdp tests/distributed/pipelining

accelerator: $(VENV)/.installed  ## operators and programs on the accelerator of this machine
	XLA_PYTHON_CLIENT_PREALLOCATE=false WEFT_COMPILE_CACHE= $(BIN)/python -m pytest -n 8 tests/accelerator

soak: $(VENV)/.installed  ## the long tests too, many more random programs, and the core without the extension
	$(BIN)/python -m pytest -n 2 -m "not faults and not oracle" --hypothesis-profile=soak
	WEFT_NATIVE=0 WEFT_TIER=interpreted $(QUICK) $(BIN)/python -m pytest $(BY_FILE) -m "not (soak or oracle or faults)" $(CORE)

faults: $(VENV)/.installed  ## kill, stop, cut off and fill up what jobs need, 20 times each; two hosts need root
	$(BIN)/python -m pytest -n 2 -m faults tests/faults

lint: $(VENV)/.installed  ## format, lint, names and type check
	$(BIN)/ruff format --check src tests bench examples tools as_torch
	$(BIN)/ruff check src tests bench examples tools as_torch
	$(BIN)/clang-format --dry-run --Werror native/src/*
	$(BIN)/python -m pytest -q tests/_base/test_words.py
	$(BIN)/pyright

check: $(VENV)/.installed  ## lint, types and tests of what differs from main (BASE=main), in about two minutes
	WEFT_TIER=interpreted $(QUICK) $(BIN)/python tools/check.py $(BASE)

dist: $(VENV)/.installed  ## build the wheels and the source archive, and try the wheels in an environment of their own
	$(BIN)/python tools/dist.py

docs: $(VENV)/.docs  ## write the documentation site to build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "build/site/index.html is the start page; to search, serve it: $(BIN)/python -m http.server --directory build/site"

oracle: $(VENV)/.oracle  ## record PyTorch's answers again and compare with them afresh
	PYTHONHASHSEED=0 $(BIN)/python -m tests.oracle.record
	$(QUICK) $(BIN)/python -m pytest -n 2 -m oracle tests/oracle
	$(BIN)/python -m tests.oracle.coverage

oracle-quick: $(VENV)/.oracle  ## the same for modules, optimizers and files, with one sample of each kind
	WEFT_ORACLE_SAMPLES=1 $(QUICK) $(BIN)/python -m pytest -n 2 -m oracle tests/oracle --ignore tests/oracle/test_fresh.py

oracle-all: $(VENV)/.oracle  ## the same with every sample of the operator database
	WEFT_ORACLE_SAMPLES=0 $(MAKE) oracle

oracle-soak: $(VENV)/.oracle  ## 10,000 random programs, compared with PyTorch and between modes
	$(QUICK) $(BIN)/python -m pytest -n 2 -m oracle --hypothesis-profile=soak tests/oracle/test_programs.py

oracle-distributed: $(VENV)/.oracle  ## PyTorch's own tests of its distributed packages, run against Weft
	WEFT_COMPILE_CACHE= $(BIN)/python -m tests.oracle.distributed

libraries: $(VENV)/.installed  ## run programs of libraries written for PyTorch, compare with its numbers; writes docs/libraries.md
	$(QUICK) $(BIN)/python tools/libraries.py

as-torch: $(VENV)/.installed  ## move a project written for PyTorch into a new environment with Weft, and run it
	$(BIN)/python tools/as_torch.py

bench: $(VENV)/.oracle  ## measure against PyTorch; writes docs/benchmarks.md
	$(BIN)/python -m bench

scale: $(VENV)/.installed  ## up to 10,000 agents in simulated time; writes docs/scale.json and docs/scale.svg, and prints the table
	$(BIN)/python -m bench.scale

native: $(VENV)/.installed  ## build the extension with the system's C++ compiler, as the environment does; all works without
	$(BIN)/python tools/native.py

tidy: $(VENV)/.tidy  ## look through the extension by clang-tidy
	$(BIN)/python tools/native.py --tidy

stubs: $(VENV)/.installed  ## write the type stubs of the derived functions and methods
	$(BIN)/python -m weft._tensor.stubs

clean:
	rm -rf $(VENV) $(VERSIONS:%=.venv-%) .pytest_cache .ruff_cache build dist
