# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Results of checks and cases, for the scripts that source this: their sum, and their failures, which
# are repeated at the end.

passed=0 failed=0 skipped=0
failures=()

# count PASSED FAILED SKIPPED: adds them to the sum.
count() {
	passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

# failure TEXT: prints TEXT and the end of the log.
failure() {
	local text
	text=$(
		echo "FAIL $1"
		tail -n 20 "$log" | sed 's/^/    /'
		echo "    log: $log"
	)
	echo "$text"
	failures+=("$text")
}

# guest_cases KERNEL CASE...: runs these cases on that kernel. Their sum stays in the log, for
# count_guest_cases KERNEL.
guest_cases() {
	qemu-tests/run --kernel "$@" 2>&1 | tee "$SIW_LOGS/qemu-tests-$1.log" |
		sed -uE "/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/d; s/^/$1: /"
}

count_guest_cases() {
	local log=$SIW_LOGS/qemu-tests-$1.log sums p f s text
	sums=$(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$log" | tail -n 1)
	[ -n "$sums" ] || failure "$1: the run did not come to its end"
	read -r p f s <<<"${sums:-0 1 0}"
	count "$p" "$f" "$s"
	# A failure is a line with others, indented, below it.
	text=$(awk '/^[^ ]/ { on = /^FAIL/ } on' "$log" | sed "s/^FAIL/& $1:/")
	[ -z "$text" ] || failures+=("$text")
}

# tell_results: prints the failures and the sum, and fails if there are failures.
tell_results() {
	if [ "$failed" -ne 0 ]; then
		echo "==> What failed"
		printf '%s\n' "${failures[@]}"
	fi
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ]
}
