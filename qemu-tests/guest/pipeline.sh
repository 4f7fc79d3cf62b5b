# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shared by the cases about the control pipeline.

# assign SETTING VALUE: of the guest's device, for later connections.
assign() { echo "$2" >"/sys/class/infiniband/$DEV/settings/$1"; }

# into_pipeline US: all registrations of later connections go there, and each operation takes so
# much longer.
into_pipeline() {
	assign ctrl_inline_pages 0
	assign ctrl_delay_us "$1"
}

# mark COUNTER...: remembers what they are. counted COUNTER N: that one has grown by N at least
# since then, or not at all if N is 0.
declare -A before
mark() { for counter in "$@"; do before[$counter]=$(counter "$counter"); done; }
counted() {
	local grown=$(($(counter "$1") - before[$1]))
	echo "$1 +$grown"
	if [ "$2" = 0 ]; then [ $grown = 0 ]; else [ $grown -ge "$2" ]; fi
}

# pipelined LEAST CMD...: guest b runs CMD with all registrations of both guests in the pipeline, then
# once more with each taking two milliseconds. beside_pipelined LEAST: guest a's part. Each guest has
# LEAST operations there at least, and none fails.
pipelined() {
	local us least=$1
	shift
	for us in 0 2000; do
		echo "== registered in the control pipeline, $us us longer"
		into_pipeline $us
		signal "pipeline-$us"
		await "ready-$us"
		mark ctrl_queued tx_terminate rx_terminate
		"$@"
		counted ctrl_queued "$least"
		counted tx_terminate 0
		counted rx_terminate 0
		signal "over-$us"
		await "counted-$us"
	done
}

beside_pipelined() {
	local us
	for us in 0 2000; do
		await "pipeline-$us" 3000
		into_pipeline $us
		mark ctrl_queued
		signal "ready-$us"
		await "over-$us" 300
		counted ctrl_queued "$1"
		signal "counted-$us"
	done
}
