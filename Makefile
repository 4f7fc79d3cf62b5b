# SPDX-License-Identifier: GPL-2.0
#
# All commands start here. Kbuild has the rules of the module itself.

MAKEFLAGS += --no-print-directory

.PHONY: modules
modules: ## build siw.ko for a stock Debian kernel; KV=RELEASE selects another one (here and below), KDIR=DIR a kernel tree of your own
	+@scripts/kmake module modules

.PHONY: sample
sample: ## build rdma_null.ko, the smallest provider on top of rust/kapi, in build/.../sample
	+@scripts/kmake sample modules SIW_SAMPLES=y

.PHONY: provider
provider: ## build the provider library for programs, build/provider/libsiw-rdmav34.so
	@scripts/provider build

.PHONY: sanitize-module
sanitize-module: ## build the module for the sanitizer kernel
	+@scripts/kmake sanitize modules

.PHONY: race-module
race-module: ## build the module for the kernel with several CPUs and lockdep
	+@scripts/kmake race modules

.PHONY: smp-module
smp-module: ## build the module for the kernel with several CPUs and KASAN, for guests in QEMU
	+@scripts/kmake smp modules

.PHONY: bench-module
bench-module: ## build the module for the kernel that measures at native speed
	+@scripts/kmake bench modules

.PHONY: bench
bench: modules bench-module ## measure against C siw, rxe and plain TCP; writes qemu-tests/BENCH.md (ROUNDS=3)
	@qemu-tests/bench/run

.PHONY: deb
deb: ## make Debian packages in build/deb; KV=all: of the module for every kernel; SIGN_KEY=, SIGN_CERT= sign it
	@scripts/package deb

.PHONY: install
install: ## install the module, a systemd service and a man page for the running kernel, or KV=; below DESTDIR=
	@scripts/package install

.PHONY: uninstall
uninstall: ## remove what `make install` has installed
	@scripts/package uninstall

.PHONY: install-test
install-test: deb ## install the packages in a guest with systemd, reboot it, and remove them; minutes
	@qemu-tests/install-test

.PHONY: kernels
kernels: ## build for every kernel of the archive, and run a few cases on each; writes qemu-tests/KERNELS.md
	@qemu-tests/kernels

.PHONY: sanitize
sanitize: sanitize-module ## run the cases that fit one kernel, on the sanitizer kernel
	@qemu-tests/run --kernel sanitize --all

.PHONY: demo
demo: modules ## run RDMA between two guests on the stock kernel, all set-up included
	@qemu-tests/demo

.PHONY: test
test: ## run lints, host tests, and every case in the guests and on the sanitizer kernel
	@scripts/test

.PHONY: soak
soak: modules sanitize-module race-module smp-module bench-module ## run the cases of any length on all kernels, TIME seconds (60) for each of their parts
	@TEST_SECONDS=$(or $(TIME),60) qemu-tests/run --timeout 3600 pair/pingpong ulp idle interop/active/perftest-crc interop/passive/perftest-crc
	@qemu-tests/run --kernel bench --timeout 3600 pair/pingpong
	@TEST_SECONDS=$(or $(TIME),60) qemu-tests/run --kernel sanitize --timeout 3600 fault abuse
	@TEST_SECONDS=$(or $(TIME),60) qemu-tests/run --kernel race --timeout 3600 fault/kill fault/remove fault/tcp abuse drain tx/posters link/loop pair/verbs ulp/pipeline
	@TEST_SECONDS=$(or $(TIME),60) qemu-tests/run --kernel smp --timeout 3600 abuse drain hotplug tx/posters link/loop pair/verbs fault/kill fault/remove fault/tcp

.PHONY: lint
lint: fmt-check clippy doc house-lint checkpatch shell-check ## run these checks of the sources

.PHONY: clippy
clippy: ## run the kernel's lints, and those of the provider library, with warnings as errors
	+@scripts/kmake clippy modules CLIPPY=1 KRUSTFLAGS=-Dwarnings KCFLAGS=-Werror
	+@scripts/kmake clippy-sample modules SIW_SAMPLES=y CLIPPY=1 KRUSTFLAGS=-Dwarnings KCFLAGS=-Werror
	@scripts/provider clippy

.PHONY: fmt-check
fmt-check: ## check that every Rust file is formatted as the kernel's are
	@scripts/fmt --check

.PHONY: fmt
fmt: ## format every Rust file, and wrap comments of more than 100 columns
	@scripts/fmt

.PHONY: house-lint
house-lint: ## check layers, circles of imports, unsafe code, ranks of locks, long files and comments
	@scripts/in-root scripts/house-lint --self-test
	@scripts/in-root scripts/house-lint

.PHONY: checkpatch
checkpatch: ## run the kernel's checkpatch over the C files
	@scripts/checkpatch

.PHONY: shell-check
shell-check: ## run shellcheck over all shell scripts
	@scripts/shell-check

.PHONY: release-test
release-test: ## test which kernel is chosen, for various contents of the archive
	@scripts/release-test

.PHONY: host-test
host-test: ## run the tests of rust/iwarp and of the provider library, on this machine
	@scripts/host-test

.PHONY: fuzz
fuzz: ## fuzz rust/iwarp and rust/provider for TIME seconds in all (60)
	@scripts/fuzz $(TIME)

.PHONY: doc
doc: ## write the documentation of the sources, private items included, to build/doc; a broken link is an error
	+@scripts/kmake module modules SIW_DOC=$(CURDIR)/build/doc
	@echo "build/doc/siw_rs/index.html build/doc/iwarp/index.html"

.PHONY: rust-analyzer
rust-analyzer: modules ## write rust-project.json: rust-analyzer then knows the module, iwarp and the kernel crates
	+@scripts/rust-analyzer

.PHONY: clean
clean: ## remove all build products; the cache of the toolchain and the kernel stays
	rm -rf build siw.ko rust-project.json

.PHONY: help
help: ## print this list
	@sed -nE 's/^([a-z-]+):.* ## (.*)/  make \1\t\2/p' Makefile | expand -t 21
