# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shared by the cases about misbehaving programs.

# abuse CMD...: runs CMD, and counts the lines "exercised N WORDS" of its output.
abuse() { "$@" | count_exercised; }

count_exercised() {
	local line
	while read -r line; do
		echo "$line"
		# shellcheck disable=SC2086 # words
		case $line in "exercised "*) exercised ${line#* } ;; esac
	done
}

# beside_traffic CMD...: the same, with verified traffic of two other programs over the same device
# until CMD ends.
beside_traffic() {
	local abuser rounds=0
	abuse "$@" &
	abuser=$!
	while kill -0 $abuser 2>/dev/null; do
		bystander
		rounds=$((rounds + 1))
	done
	wait $abuser
	echo "$rounds rounds of traffic beside it"
}

bystander() {
	local server
	verify server "$A4" data &
	server=$!
	until_true 60 listening_or_gone 7472 $server
	verify client "$A4" data
	wait $server
}
