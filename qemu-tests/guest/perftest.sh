# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The body of the perftest cases: each operation, bandwidth and latency, at the sizes of the case.
# Iterations are few, because this tests completion, not speed.

# Lines of "size iterations". On one CPU, programs that poll for each other take a time slice for
# each message.
[ "$KERNEL" = stock ] || sizes="1 10
65536 5"
: "${sizes:="1 100
4096 50
65536 20
4194304 5"}"

each() {
	local kind op size iters
	for kind in bw lat; do
		for op in send write read; do
			while read -r size iters; do
				"$1" 18515 "$op-$kind-$size" "ib_${op}_$kind" -R -F -d "$DEV" -s "$size" -n "$iters" "${@:2}"
			done <<<"$sizes"
		done
	done
}

# A client has the server's address in place of a port to listen at.
perftest_client() {
	shift
	client "$@"
}

a() { each serve; }
b() { each perftest_client "$A4"; }
