# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The parts of bench.sh about storage: NVMe and NFS over RDMA, against the same over TCP. Guest b
# has both connected at once, and they take turns of BENCH_SECONDS. What disturbs the machine for
# longer disturbs both, so report.py takes the ratio of each two turns.

. "$TESTS/guest/nvmet.sh"
. "$TESTS/guest/nfs.sh"

: "${BENCH_TURNS:=2}"
# NVMe makes no more queues than there are CPUs.
QUEUES=$(nproc)

# stored: whether to measure them here. Neither works in a network namespace, which is what a guest
# is in User Mode Linux. C siw is slow, so it is measured in the first round only.
stored() {
	case $PLACE:$CONTENDER:$CASE in
	pair:tcp* | pair:c-siw:*.*) false ;;
	pair:*) ;;
	*) false ;;
	esac
}

part_nvme() {
	stored || return 0
	if [ "$GUEST" = a ]; then
		nvmet_up
		nvmet_offer 2 tcp tcp 4421
		dd if=/dev/zero of=/dev/ram0 bs=1M count=64 oflag=direct
		serve_turns
		nvmet_withdraw 2 tcp
		rmmod nvmet-tcp
		nvmet_down
	else
		modprobe -a nvme-rdma nvme-tcp
		await served
		connect_for_turns || echo "no connection"
		set -- /dev/nvme0n1 /dev/nvme1n1
		by_turns "nvme-randread-1-$QUEUES" "$@" --rw=randread --bs=4k --iodepth=1
		by_turns "nvme-randread-16-$QUEUES" "$@" --rw=randread --bs=4k --iodepth=16
		by_turns "nvme-read-$QUEUES" "$@" --rw=read --bs=128k --iodepth=8
		by_turns "nvme-write-$QUEUES" "$@" --rw=write --bs=128k --iodepth=8
		no_nvme || nvme_disconnect
		signal measured
		rmmod nvme-rdma
		rdma link delete "$DEV"
	fi
	rdma link add "$DEV" type siw netdev eth0
}

connect_for_turns() {
	nvme_connect siw nr_io_queues="$QUEUES" queue_size=32 && until_true 20 nvme_disk &&
		nvme_connect tcp transport=tcp trsvcid=4421 nr_io_queues="$QUEUES" queue_size=32 &&
		until_true 20 [ -b /dev/nvme1n1 ]
}

# NFS 3, because to a client of NFS 4 both would be the same server, with one connection for both.
part_nfs() {
	stored || return 0
	if [ "$GUEST" = a ]; then
		NFS_LARGEST=1048576 nfs_serve
		dd if=/dev/zero of=$exported/file bs=1M count=32
		serve_turns
		nfs_stop
	else
		await served
		mkdir -p /mnt/tcp
		nfs_mount 3,nolock,mountproto=tcp || echo "no connection"
		mount -t nfs -o vers=3,nolock,mountproto=tcp,proto=tcp "$A4:$exported" /mnt/tcp
		grep /mnt/tcp /proc/mounts
		set -- /mnt/nfs/file /mnt/tcp/file
		by_turns nfs-read "$@" --rw=read --bs=1M --iodepth=8
		by_turns nfs-write "$@" --rw=write --bs=1M --iodepth=8
		by_turns nfs-randread "$@" --rw=randread --bs=4k --iodepth=16
		umount -t nfs -a
		signal measured
	fi
}

# serve_turns: guest a's part of them: it tells what its CPUs have done.
serve_turns() {
	local teller
	busybox nc -ll -p 4480 -e head -n 1 /proc/stat &
	teller=$!
	until_true 20 tcp_listens 4480
	signal served
	await measured 400
	kill $teller
}

# by_turns ROW FILE TCP-FILE OPTION...: records I/O of fio with these options, by a job on each CPU,
# and the CPU time of both ends in nanoseconds a KiB; or that it is not possible.
by_turns() {
	echo "+ $*"
	if ! { [ -e "$2" ] && [ -e "$3" ] && fio_by_turns "$@"; }; then figure "$1" cannot; fi
}

fio_by_turns() {
	local row=$1 files=("$2" "$3") turn way job jobs=() busy="{ head -n 1 /proc/stat; busybox nc $A4 4480; }"
	shift 3
	# Turn 0 does not count: QEMU translates code that runs for the first time.
	for ((turn = 0; turn <= BENCH_TURNS; turn++)); do
		for way in 0 1; do
			jobs+=(--name="$turn-$way" --stonewall --exec_prerun="$busy" --exec_postrun="$busy")
			for ((job = 0; job < QUEUES; job++)); do
				[ $job = 0 ] || jobs+=(--name="$turn-$way.$job")
				jobs+=(--filename="${files[way]}" --cpus_allowed="$job" "$@")
				[ $turn -gt 0 ] || jobs+=(--runtime=500ms)
			done
		done
	done
	rm -rf /tmp/turns
	mkdir /tmp/turns
	(
		cd /tmp/turns
		timeout -k 5 60 fio --output=terse --output-format=terse --terse-version=3 --ioengine=libaio --direct=1 \
			--size=32M --time_based --runtime="$BENCH_SECONDS" "${jobs[@]}" &&
			awk -v row="$row" -v turns="$BENCH_TURNS" "$FIGURES_OF_TURNS" [0-9]*.txt terse >/tmp/out
	) || return 1
	cat /tmp/out
	figures '{ print }'
}

# Lines of /proc/stat of either end before and after each job, and of fio's terse output.
# shellcheck disable=SC2016 # for awk
FIGURES_OF_TURNS='
	{ job = FILENAME; sub(/\..*/, "", job) }
	/^cpu / { busy[job] += (FILENAME ~ /pre/ ? -1 : 1) * ($2 + $3 + $4 + $7 + $8) }
	split($0, of, ";") > 50 {
		job = of[3]
		sub(/\..*/, "", job)
		kib[job] += of[6] + of[47]
		rate[job] += row ~ /rand/ ? of[8] + of[49] : (of[7] + of[48]) * 1024e-6
	}
	END {
		for (i = 1; i <= turns; i++) {
			print row, rate[i "-0"], rate[i "-1"]
			print "cpu-" row, busy[i "-0"] * 1e7 / kib[i "-0"], busy[i "-1"] * 1e7 / kib[i "-1"]
		}
	}'
