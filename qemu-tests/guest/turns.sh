# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# For cases that look at the turns of queue pairs, by the order in which their WRITEs complete.

# A workqueue takes what has not ended in 10 ms, as a turn of an emulated CPU, for one that will not end soon, and goes
# on with the next: then it is the scheduler who decides which queue pair gets how much.
restore=
patient=/sys/module/workqueue/parameters/cpu_intensive_thresh_us

# turns_net: only datamovers, and no chance, decide on the order.
turns_net() {
	setting 0 $patient
	# Nor is a real-time thread interrupted for the others' sake, if it takes a second.
	setting -1 /proc/sys/kernel/sched_rt_runtime_us
	setting 0 /sys/kernel/debug/sched/fair_server/cpu*/runtime
	sndbuf 16777216
}

# setting VALUE FILE...: to the end of the case, of the files that there are. The kernel refuses even the present value
# for the server of a CPU that came after the boot, which has none.
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
