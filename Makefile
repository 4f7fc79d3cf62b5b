# SPDX-License-Identifier: GPL-2.0
#
# The front of everything; the rules of the module itself are in Kbuild.

MAKEFLAGS += --no-print-directory

.PHONY: modules
modules: ## build siw.ko for the stock Debian kernel; KDIR=... for another tree with Rust metadata
	+@scripts/kmake module modules
	@cp build/module/siw.ko siw.ko
