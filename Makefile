# The few commands a person needs; the build itself is CMake (see CMakePresets.json).
#   make demo      make test      make install PREFIX=/usr/local

PREFIX  ?= /usr/local
DESTDIR ?=
SECONDS ?= 60
TORCH   ?= torch accelerate transformers lightning
TESTS   ?= python_
JOBS    ?= $(shell nproc)

# A jobserver of this make would only confuse the one that CMake starts.
MAKEFLAGS += --no-print-directory
unexport MAKEFLAGS

build  = cmake --preset $(1) $(2) >/dev/null && cmake --build --preset $(1) --parallel $(JOBS) $(if $(3),--target $(3))
verify = ctest --preset $(1) --parallel $(JOBS) --output-on-failure

.PHONY: all demo demo-report results test asan install tsan mpich torch slurm cross-x86 cross-aarch64 wheel deb fuzz format clean help

all: ## build the release preset
	@tools/install-deps.sh build
	@$(call build,release)

demo: all ## install what is missing, build, and train on Fashion-MNIST with dense gradients and with FruGrad
	@tools/install-deps.sh demo || echo "make demo: going on without the data set"
	@build/release/frugrad demo

demo-report: all ## compare a dozen methods on made-up tasks (20 seconds) and write build/smoke.html
	@build/release/frugrad compare --out build/smoke
	@build/release/frugrad report build/smoke -o build/smoke.html >/dev/null
	@echo "build/smoke.html: open it in a browser"

results: all ## fill the tables and charts of README.md and docs from results/
	@tools/results.py fill
	@tools/readme_figure.py

test: ## install what is missing, build, and run all tests
	@tools/install-deps.sh build test mpi
	@$(call build,dev)
	@$(call verify,dev)

asan: ## run the C tests again under ASan + UBSan, and build the library alone, without OpenMP
	@tools/install-deps.sh build test mpi
	@$(call build,asan)
	@$(call verify,asan)
	@$(call build,minimal)

install: ## install library, header, program and man page under PREFIX (and DESTDIR)
	@tools/install-deps.sh build
	@$(call build,release,-DCMAKE_INSTALL_PREFIX=$(PREFIX))
	@DESTDIR=$(DESTDIR) cmake --install build/release
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig # so that programs linked without pkg-config find it too

tsan: ## run all tests under ThreadSanitizer
	@tools/install-deps.sh build test clang
	@$(call build,tsan)
	@$(call verify,tsan)

mpich: ## run the tests of the exchange over MPI with MPICH; make test does so with Open MPI
	@tools/install-deps.sh build test mpich
	@$(call build,mpich,,mpi_tests)
	@$(call verify,mpich)

torch: ## run the Python tests (TESTS) with the current PyTorch and Accelerate (TORCH) from PyPI, in build/torch
	@tools/install-deps.sh build test torch
	@[ -x build/torch/bin/python ] || /usr/bin/python3 -m venv build/torch
	@build/torch/bin/pip install --quiet numpy $(TORCH)
	@$(call build,dev,-DFRUGRAD_PYTHON=$(CURDIR)/build/torch/bin/python)
	@$(call verify,dev) -R '^$(TESTS)'; status=$$?; cmake --preset dev -UFRUGRAD_PYTHON >/dev/null; exit $$status

slurm: ## start a Slurm of one node, as root, and run frugrad and torchrun under it
	@tools/install-deps.sh build test mpi slurm
	@$(call build,release)
	@tests/cluster/slurm.sh

cross-x86: ## on another architecture: build for x86-64 and run the tests under qemu
	@tools/install-deps.sh build cross-x86
	@tools/cross-root.sh amd64
	@$(call build,cross-x86)
	@$(call verify,cross-x86)

cross-aarch64: ## likewise for aarch64
	@tools/install-deps.sh build cross-aarch64
	@tools/cross-root.sh arm64
	@$(call build,cross-aarch64)
	@$(call verify,cross-aarch64)

wheel: ## build sdist and manylinux wheel into dist/, and try the wheel in a fresh virtual environment
	@tools/install-deps.sh build torch
	@tools/wheel.sh dist

deb: ## build the Debian packages into build/deb, and check them with lintian
	@tools/install-deps.sh build deb
	@tools/deb.sh build/deb

fuzz: ## run every fuzz target for SECONDS seconds
	@tools/install-deps.sh build clang
	@$(call build,fuzz)
	@tools/fuzz.sh build/fuzz $(SECONDS)

format: ## format all C files
	@tools/install-deps.sh format
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean: ## remove everything that was built
	@rm -rf build

help: ## say what there is
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1 - /p' Makefile
