# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The body of the bench cases: guest b adds "DRIVER MEASURE VALUE" lines to figures.

each() {
	local op
	for op in write send read; do
		"$1" 18515 "bw-$op" "ib_${op}_bw" -R -F -d "$DEV" -s 65536 -n 300 --report_gbits "${@:2}"
	done
	for op in send write read; do
		"$1" 18515 "lat-$op" "ib_${op}_lat" -R -F -d "$DEV" -s 64 -n 5000 "${@:2}"
	done
}

bench_client() {
	shift
	client "$@" >/tmp/out
	cat /tmp/out
	# Average bandwidth; typical latency.
	awk -v driver="$DRIVER" -v name="$1" '
		$1 == 65536 { print driver, name, $4 }
		$1 == 64 { print driver, name, $5 }' /tmp/out >>"$OUT/figures"
}

a() { each serve; }
b() { each bench_client "$A4"; }
