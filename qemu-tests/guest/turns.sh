# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Shared by cases that derive the turns of queue pairs from the order in which their WRITEs
# complete. They must be copied (large_fpdus=0): then they complete once TCP has taken them, in the
# order of the turns, and not when the peer acknowledges them.

# A work queue takes an item that runs for 10 ms, as a turn on an emulated CPU does, for
# CPU-intensive, and starts the next one. Then the scheduler decides which queue pair gets how much.
restore=
patient=/sys/module/workqueue/parameters/cpu_intensive_thresh_us

# turns_net: lets only the datamovers decide on the order, without chance.
turns_net() {
	setting 0 $patient
	# A real-time thread is not interrupted in favour of others, even after a second.
	setting -1 /proc/sys/kernel/sched_rt_runtime_us
	setting 0 /sys/kernel/debug/sched/fair_server/cpu*/runtime
	sndbuf 16777216
}

# setting VALUE FILE...: writes VALUE to those of the files that exist, until the end of the case. Writes no value that is
# there already: a CPU that came after the boot has no fair server, and the kernel refuses to set its share to 0 again.
setting() {
	local file
	for file in "${@:2}"; do
		[ ! -e "$file" ] || [ "$(cat "$file")" = "$1" ] || {
			restore+="echo $(cat "$file") >$file;"
			# shellcheck disable=SC2064 # now
			trap "$restore" EXIT
			echo "$1" >"$file"
		}
	done
}

number() { sed -nE "$1" /run/lanes.out; }
