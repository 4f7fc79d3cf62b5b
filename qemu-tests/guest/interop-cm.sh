# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The body of the interop cm cases: the bodies of two other cases, one after the other.

half() {
	local name
	for name in ucmatose cmtime; do
		(
			# shellcheck source=/dev/null
			. "$TESTS/cases/cm/$name.case"
			"$GUEST"
		)
	done
}

a() { half; }
b() { half; }
