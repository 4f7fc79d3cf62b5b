# SPDX-License-Identifier: GPL-2.0
#
# All commands start here. Kbuild has the rules of the module itself. "make help" prints what follows
# "##" here: the headings of groups, targets and, at the end, variables.

MAKEFLAGS += --no-print-directory

## Try it and use it

.PHONY: modules
modules: ## build siw.ko for a stock Debian kernel; 4 min the first time, then seconds
	+@scripts/kmake module modules

.PHONY: demo
demo: ## run RDMA between two guests, all set-up included; 4 min the first time, then 1 min
	@qemu-tests/demo

.PHONY: shell
shell: modules ## boot two guests with the driver and a device each, and show a terminal of each; 1 min
	@qemu-tests/shell

.PHONY: deb
deb: ## make Debian packages in build/deb; KV=all: of the module for every kernel; 1 min each
	@scripts/package deb

.PHONY: install
install: ## install the module, a systemd service and a man page for the running kernel, or KV=
	@scripts/package install

.PHONY: uninstall
uninstall: ## remove what make install has installed
	@scripts/package uninstall

.PHONY: provider
provider: ## build the provider library for programs, build/provider/libsiw-rdmav34.so; 1 min
	@scripts/provider build

.PHONY: clean
clean: ## remove all build products; the cache of the toolchain and the kernel stays
	rm -rf build siw.ko rust-project.json

.PHONY: help
help: ## print this list
	@sed -nE -e 's/^([a-z-]+):.* ## (.*)/  make \1\t\2/p' -e 's/^## ([A-Z_]+=.*)\t/  \1\t/p' -e 's/^## ([^=]*)$$/\n\1/p' \
		Makefile | expand -t 25 | tail -n +2

## Test

.PHONY: test
test: ## run lints, host tests, the cases in guests and on the sanitizer kernel; 1 h
	@scripts/test

.PHONY: check
check: ## run lints, host tests and twelve cases, on both kernels, for each change; 8 min, the first time 16 after make demo
	@scripts/test --check

.PHONY: host-test
host-test: ## run the tests of rust/iwarp and of the provider library, on this machine; 1 min
	@scripts/host-test

.PHONY: fuzz
fuzz: ## fuzz rust/iwarp and rust/provider, for TIME=60 seconds in all
	@scripts/fuzz $(TIME)

.PHONY: sanitize
sanitize: sanitize-module ## run the cases that fit one kernel, on the sanitizer kernel; a part of make test
	@qemu-tests/run --kernel sanitize --all

.PHONY: soak
soak: modules sanitize-module race-module smp-module bench-module ## run the cases of any length on all kernels, TIME=60 seconds for each part, and long ones where make test does not; over an hour
	@scripts/soak $(TIME)

.PHONY: kernels
kernels: ## build for every kernel of the archive, run a few cases on each, write KERNELS.md; 1 h
	@qemu-tests/kernels

.PHONY: install-test
install-test: deb ## install the packages in two guests with systemd, upgrade, reboot, purge; 10 min
	@qemu-tests/install-test

.PHONY: dkms-test
dkms-test: deb ## install the package for dkms, which builds the module, and run a case with it; 10 min
	@qemu-tests/dkms-test

.PHONY: release-test
release-test: ## test which kernel is chosen, for various contents of the archive; seconds
	@scripts/release-test

## Measure

.PHONY: bench
bench: modules bench-module ## measure against C siw, rxe and plain TCP, write BENCH.md; ROUNDS=3, each 20 to 36 min
	@qemu-tests/bench/run

## Check and read the sources

.PHONY: lint
lint: fmt-check clippy doc house-lint checkpatch shell-check ## run the next six; 1 min

.PHONY: fmt-check
fmt-check: ## check that every Rust file is formatted as the kernel's are
	@scripts/fmt --check

.PHONY: clippy
clippy: ## run the kernel's lints, and those of the provider library; warnings are errors
	+@scripts/kmake clippy modules CLIPPY=1 KRUSTFLAGS=-Dwarnings KCFLAGS=-Werror
	+@scripts/kmake clippy-sample modules SIW_SAMPLES=y CLIPPY=1 KRUSTFLAGS=-Dwarnings KCFLAGS=-Werror
	@scripts/provider clippy

.PHONY: doc
doc: ## write the documentation of the sources to build/doc; a broken link is an error
	+@scripts/kmake module modules SIW_DOC=$(CURDIR)/build/doc
	@echo "build/doc/{driver,rdma,soft,base,iwarp}/index.html"

.PHONY: house-lint
house-lint: ## check circles of imports, SAFETY comments, ranks of locks, long files, comments
	@scripts/in-root scripts/house-lint --self-test
	@scripts/in-root scripts/house-lint

.PHONY: checkpatch
checkpatch: ## run the kernel's checkpatch over the C files
	@scripts/checkpatch

.PHONY: shell-check
shell-check: ## run shellcheck over all shell scripts
	@scripts/shell-check

.PHONY: fmt
fmt: ## format every Rust file, and wrap comments of more than 100 columns
	@scripts/fmt

.PHONY: rust-analyzer
rust-analyzer: modules ## write rust-project.json, for rust-analyzer
	+@scripts/rust-analyzer

## Build other modules

.PHONY: sample
sample: ## build rdma_null.ko, the smallest provider on top of rust/rdma, in build/.../sample
	+@scripts/kmake sample modules SIW_SAMPLES=y

.PHONY: sanitize-module
sanitize-module: ## build the module for the sanitizer kernel; a test kernel takes 10 min the first time
	+@scripts/kmake sanitize modules

.PHONY: race-module
race-module: ## build it for the test kernel with several CPUs and lockdep
	+@scripts/kmake race modules

.PHONY: smp-module
smp-module: ## build it for the test kernel with several CPUs and KASAN, for guests in QEMU
	+@scripts/kmake smp modules

.PHONY: bench-module
bench-module: ## build it for the test kernel that measures at native speed
	+@scripts/kmake bench modules

## Variables, of all targets where nothing else is said

## KV=RELEASE	the kernel, of Debian's archive; the newest one known to work
## KDIR=DIR	modules: a kernel tree of your own, built with Rust; needs no root
## TIME=SECONDS	fuzz, soak: how long
## ROUNDS=N	bench: how often each is measured
## DESTDIR=DIR	install, uninstall: where the root of the system is; /
## SIGN_KEY=FILE	deb, install: signs the module; its certificate is SIGN_CERT=FILE
## SIW_CACHE=DIR	where toolchain, kernel and guests are, 5.5 GB; ~/.cache/siw
