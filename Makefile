# Everything a person or CI runs. Each target sets up what it needs, from a bare Debian 12 with git and make;
# a second run finds it done. State: .venv (Python environments), .cache (Bazel's disk cache, logs, reports).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.SECONDARY:

# TF=2.15.1 limits a target to one TensorFlow.
TF_VERSIONS := 2.15.1 2.21.0
# The demo uses the one that is set up faster (34 against 87 s, measured on two cores) and imports faster.
ONE_TF := $(firstword $(TF) 2.15.1)
TEST_TF := $(or $(TF),$(TF_VERSIONS))
TEST_TORCH := $(or $(TORCH),2.13.0)
TEST_VERSIONS = $(TEST_TF:%=--tf=%) $(TEST_TORCH:%=--torch=%)
NP ?= 2
# TensorFlow's builds for GPUs, and the pretend GPU for each.
GPU_ENVIRONMENTS = $(foreach tf,$(TEST_TF),.venv/gpu-$(tf)/.installed .venv/gpu-$(tf)/.pretend_gpu)

# The engine is the same for all TensorFlows; the cache saves compiling it for each again.
export TF_SMDDP_BAZEL_ARGS := --disk_cache=$(CURDIR)/.cache/bazel $(TF_SMDDP_BAZEL_ARGS)
export PYTHON
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PY = $$(tools/choose_python.sh any)
venv_bin = .venv/tf-$(1)/bin
# TensorFlow greets each rank with lines about its build; 1 leaves the warnings.
in_venv = PATH="$(CURDIR)/$(call venv_bin,$(ONE_TF)):$$PATH" TF_CPP_MIN_LOG_LEVEL=$${TF_CPP_MIN_LOG_LEVEL:-1}

# BENCH='engine sets --rounds 5' chooses what bench measures; PEERS='mpich gloo' what bench-peers installs.
bench = TF_SMDDP_BENCH_PYTHON="$(CURDIR)/$(call venv_bin,$(ONE_TF))/python" .venv/bench/bin/python

# What the installed package is made of.
SOURCES := $(shell find kernels ops smddp tf_smddp torch_smddp smddprun smdistributed *.py third_party \
	BUILD WORKSPACE .bazelrc pyproject.toml README.md tools/run_bazel.py \
	-type f ! -path '*/__pycache__/*' ! -name '_build_info.py' ! -name '*.so')

# What the pretend GPU is made of.
PRETEND_GPU := $(shell find tests/pretend_gpu -type f ! -path '*/tests/*' ! -name '*.md')

.PHONY: help
help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | \
	  while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done
	@echo
	@echo '  TF=2.15.1 or TF=2.21.0 chooses the TensorFlow, TORCH=2.13.0 the PyTorch, PYTHON=… the Python, NP=… the ranks of demo;'
	@echo '  BENCH=… what bench measures (--help lists it), PEERS=… what bench-peers installs.'

.PHONY: demo
demo: .venv/tf-$(ONE_TF)/.installed  ## Train a small CNN on real images with two ranks
	$(in_venv) smddprun -np $(NP) python examples/digits.py

.PHONY: quick
quick: .venv/lint/.requirements .venv/tf-$(ONE_TF)/.installed  ## Before a commit: lint, C++ tests, the SPMD suite with 2 ranks (5 minutes)
	@$(PY) tools/run_tests.py --quick lint layering cpp spmd --tf=$(ONE_TF)

# The Python environments are set up, and their tests run, beside the C++ tests.
ALL_PARTS := set-up lint docs layering cpp asan tsan fuzz model jobs launchers spmd torch gpu overlap bench

.PHONY: test
test: .venv/lint/.requirements .venv/docs/.requirements launchers  ## What CI runs: every kind of test, and the lint (20 to 40 minutes)
	@$(PY) tools/run_tests.py $(ALL_PARTS) $(TEST_VERSIONS)

.PHONY: test-all
test-all: .venv/lint/.requirements .venv/docs/.requirements launchers cluster clang  ## Every test in every variant (100 minutes)
	@$(PY) tools/run_tests.py --all $(ALL_PARTS) $(TEST_VERSIONS)

.PHONY: cpp-test
cpp-test: .venv/lint/.requirements  ## Run the tests in C++ and C
	@$(PY) tools/run_tests.py cpp

.PHONY: asan
asan: system  ## Run the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(PY) tools/run_tests.py asan

.PHONY: tsan
tsan: system  ## Run the C++ tests under ThreadSanitizer
	@$(PY) tools/run_tests.py tsan

.PHONY: fuzz
fuzz: clang  ## Fuzz what reads messages, shared memory and /proc, for some seconds each
	@$(PY) tools/run_tests.py --all fuzz

.PHONY: model
model: .venv/lint/.requirements  ## Explore the model of the engine's protocol, in every interleaving
	@$(PY) tools/run_tests.py --all model

.PHONY: python-test
python-test: launchers $(TEST_TF:%=.venv/tf-%/.installed)  ## Run the Python tests
	@$(PY) tools/run_tests.py jobs launchers spmd overlap $(TEST_TF:%=--tf=%)

.PHONY: torch-test
torch-test: $(TEST_TORCH:%=.venv/torch-%/.installed)  ## Run the tests with PyTorch, without TensorFlow
	@$(PY) tools/run_tests.py torch $(TEST_TORCH:%=--torch=%)

.PHONY: gpu-test
gpu-test: $(GPU_ENVIRONMENTS)  ## Run TensorFlow's GPU builds on a pretend GPU (downloads 1 GB)
	@$(PY) tools/run_tests.py --all gpu $(TEST_TF:%=--tf=%)
	@$(PY) tools/run_bazel.py test --nocache_test_results --test_output=streamed //tests/cpp/cuda:leave_out_waits_test

.PHONY: lint
lint: .venv/lint/.requirements  ## Check formatting, types and layering
	@$(PY) tools/run_tests.py lint layering

.PHONY: docs
docs: .venv/docs/.requirements  ## Build the documentation into site/, and check its links
	@$(PY) tools/run_tests.py docs
	@echo 'The first page is $(CURDIR)/site/index.html'

.PHONY: format
format: .venv/lint/.requirements  ## Format the Python and C++ files, and write docs/reference
	@.venv/lint/bin/ruff check --quiet --fix . || true
	@.venv/lint/bin/ruff format --quiet .
	@$(PY) tools/reference.py
	@find kernels ops tests third_party benchmarks -name '*.h' -o -name '*.cc' -o -name '*.cu' | xargs -r .venv/lint/bin/clang-format -i

.PHONY: bench
bench: .venv/bench/.requirements .venv/tf-$(ONE_TF)/.installed  ## Measure allreduce and training, beside the peers that are installed
	$(bench) benchmarks/run.py $(BENCH)

.PHONY: bench-peers
bench-peers: .venv/bench/.requirements  ## Install the peers that bench compares with: MPI, Gloo, torch, Horovod
	.venv/bench/bin/python benchmarks/setup_peers.py $(PEERS)

.PHONY: cluster-model
cluster-model: .venv/bench/.requirements cluster  ## Simulate allreduces on up to 256 hosts, and draw docs/cluster-model.svg
	benchmarks/cluster/build.sh .cache/cluster
	.venv/bench/bin/python benchmarks/cluster/sweep.py .cache/cluster
	.venv/bench/bin/python benchmarks/cluster/sets.py .cache/cluster
	.venv/bench/bin/python benchmarks/cluster/formula.py
	.venv/bench/bin/python benchmarks/cluster/plot.py

.PHONY: wheel
wheel: $(TEST_TF:%=dist/tf-%)  ## Build a wheel for each TensorFlow into dist/

dist/tf-%: .venv/tf-%/.installed
	@rm -rf $@
	@.venv/tf-$*/bin/python -m pip wheel --quiet --no-deps --wheel-dir $@ .
	@ls $@/*.whl

.PHONY: wheels
wheels:  ## Build a wheel for each TensorFlow from 2.15 to 2.21, and try each with each Python (half an hour)
	@$(PY) tools/wheel_matrix.py

.PHONY: clean
clean:  ## Remove everything that make has made in this folder, and Bazel's output
	@$(PY) tools/run_bazel.py clean --expunge >/dev/null 2>&1 || true
	@TF_SMDDP_BAZEL_STARTUP_ARGS=--output_base=$(CURDIR)/.cache/bazel-install \
	  $(PY) tools/run_bazel.py clean --expunge >/dev/null 2>&1 || true
	@rm -rf .venv .cache build dist site *.egg-info .mypy_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up ---

.PHONY: system
system:
	@tools/setup_system.sh

# SimGrid, for the model of a cluster.
.PHONY: cluster
cluster: system
	@tools/setup_system.sh cluster

# clang, for libFuzzer.
.PHONY: clang
clang: system
	@tools/setup_system.sh clang

# Open MPI and Slurm, which tests start.
.PHONY: launchers
launchers: system
	@tools/setup_system.sh launchers

.venv/lint/.requirements: tools/requirements-lint.txt tools/setup_venv.sh | system
	@tools/setup_venv.sh lint

.venv/docs/.requirements: tools/requirements-docs.txt tools/setup_venv.sh | system
	@tools/setup_venv.sh docs

.venv/bench/.requirements: tools/requirements-bench.txt tools/setup_venv.sh | system
	@tools/setup_venv.sh bench

.venv/openmpi/.requirements: tools/requirements-openmpi.txt tools/setup_venv.sh | system
	@tools/setup_venv.sh openmpi

# SageMaker's training toolkit, on top of the environment with TensorFlow.
.venv/sagemaker-%/.requirements: tools/requirements-sagemaker.txt tools/setup_venv.sh .venv/tf-%/.requirements
	@tools/setup_venv.sh sagemaker-$*

# A server for S3 and TensorFlow's client, likewise.
.venv/s3-%/.requirements: tools/requirements-s3.txt tools/setup_venv.sh .venv/tf-%/.requirements
	@tools/setup_venv.sh s3-$*

.venv/tf-%/.requirements: tools/requirements-test.txt tools/setup_venv.sh | system
	@tools/setup_venv.sh tf-$*

# PyTorch, without TensorFlow: the engine alone is built for it.
.venv/torch-%/.requirements: tools/requirements-torch.txt tools/setup_venv.sh | system
	@tools/setup_venv.sh torch-$*

# The TensorFlow that has kernels for GPUs.
.venv/gpu-%/.requirements: tools/requirements-test.txt tools/setup_venv.sh | system
	@tools/setup_venv.sh gpu-$*

.venv/%/.installed: .venv/%/.requirements .cache/sources $(SOURCES)
	@echo 'Building and installing tf_smddp into .venv/$*'
	@.venv/$*/bin/python -m pip install --quiet .
	@touch $@

.venv/gpu-%/.pretend_gpu: .venv/gpu-%/.requirements $(PRETEND_GPU)
	@echo 'Building the pretend GPU into .venv/gpu-$*/pretend_gpu'
	@tests/pretend_gpu/tensorflow/install.sh .venv/gpu-$*
	@touch $@

# Changes when a source file comes or goes, which no time of a file shows.
.cache/sources: FORCE
	@mkdir -p .cache
	@printf '%s\n' $(sort $(SOURCES)) | cmp -s - $@ || printf '%s\n' $(sort $(SOURCES)) > $@

.PHONY: FORCE
FORCE:
