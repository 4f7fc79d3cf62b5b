# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Checked I/O to disks of a target that serves several, for the cases that source this.

# io DISK OFFSET FILE OPTION...: reads and writes there until it is killed. The result is in FILE.
io() {
	exec fio --filename="/dev/$1" --offset="$2" --direct=1 --time_based --runtime=3600 --rw=randrw --size=4M --verify=crc32c --verify_fatal=1 \
		--verify_backlog=64 --ioengine=libaio --output="$3" "${@:4}" --name=small --bs=4k --iodepth=32 \
		--name=large --bs=32k --iodepth=4 --offset="$(($2 + 4194304))"
}

# more DISK PROGRAM: waits until the disk has done more than what was under way.
more() {
	sectors "$1"
	until_true 60 more_than "$1" $((moved + 1000))
	kill -0 "$2"
}
# sectors DISK: sets moved to the sectors read and written. It starts no program, which takes long beside fio.
sectors() {
	local read written
	read -r _ _ read _ _ _ written _ <"/sys/block/$1/stat"
	moved=$((read + written))
}
more_than() { sectors "$1" && [ "$moved" -gt "$2" ]; }

# end_io PROGRAM FILE: ends it. No data was wrong.
end_io() {
	kill "$1"
	# fio ends in order, and says so by this status.
	wait "$1" || [ $? = 128 ]
	grep -E 'read:|write:|err=' "$2"
	[ "$(grep -c 'err= 0' "$2")" = 2 ]
}
