# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The body of the bench cases, which set CONTENDER, and PARTS if some are not measured. BENCH_PARTS
# selects from these. Guest b adds lines "PLACE CONTENDER MEASURE VALUE" to figures. The places are
# the pair of QEMU guests (pair) and, in User Mode Linux, veth and loop. In loop both ends are at the
# address of guest a, whose network namespace guest b enters, so TCP goes over lo. A device on lo
# itself would not work with C siw.
#
# For storage the same over TCP is measured in turns: a line then ends with VALUE TCP-VALUE. VALUE
# "cannot" says that it is not possible.

. "$TESTS/guest/storage.sh"
. "$TESTS/guest/mpi.sh"

HALF=${BASH_SOURCE[1]}
: "${PARTS:=bw sleeping rate lat cpu sizes qps regions reg odp beside mpi nvme nfs}"
# The bound with C siw, see serve.
: "${BOUND:=20}"
: "${BENCH_BW_SIZES:=4096 65536 1048576}" "${BENCH_LAT_SIZES:=64 4096}"
MORE_SIZES="256 1024 16384 262144 4194304"
QPS="1 16 256 1024" REGIONS="1 1000 100000"
# C siw's programs have room for some 144 rings.
case $CONTENDER in c-siw | siw-nocrc) QPS="1 16" ;; esac
# What guests with two CPUs measure has names of its own.
[ "$KERNEL:$(nproc)" = stock:2 ] && CPUS=-two || CPUS=

# Parts that take long, or hardly vary, are measured in the first round only. A case that runs
# again has a numbered name.
case $CASE in *.*) PARTS=$(tr ' ' '\n' <<<"$PARTS" | sed -E '/^(sizes|qps|regions|reg|odp|beside|mpi)$/d' | xargs) ;; esac
if [ "$KERNEL" = stock ]; then
	BENCH_PLACES=pair ROUND_TRIPS=3000 REG_MIB=256
	: "${BENCH_SECONDS:=2}"
else
	# On User Mode Linux each page is a mapping of this machine, whose kernel has a limit for them.
	ROUND_TRIPS=20000 REG_MIB=128 REGIONS+=" 1000000"
	case $CONTENDER in c-siw | siw-nocrc) ;; *) QPS+=" 8192" ;; esac
	: "${BENCH_PLACES:=veth loop}" "${BENCH_SECONDS:=1}"
fi

a() { every_place; }
b() { every_place; }

every_place() {
	[ -z "${PLACE:-}" ] || {
		all_parts
		return
	}
	for PLACE in $BENCH_PLACES; do
		export PLACE
		if [ "$PLACE$GUEST" != loopb ]; then
			all_parts
		else
			nsenter --net="$SHARED/netns/a" bash "$TESTS/guest/run-case" "$HALF"
		fi
	done
}

all_parts() {
	local part
	[ "$PLACE" != loop ] || DEV=${DEV%?}0
	# QEMU translates code that runs for the first time, which takes longer than running it.
	is_tcp || perftest warm-up ib_write_bw -s 65536 -D "$BENCH_SECONDS"
	for part in $PARTS; do
		[[ " ${BENCH_PARTS:-$PARTS} " != *" $part "* ]] || "part_$part"
	done
}

is_tcp() { [ "$DRIVER" = none ]; }

# two NAME SERVER... -- CLIENT...: runs SERVER in guest a, and CLIENT, with its output in
# /tmp/out, in guest b.
two() {
	local name=$PLACE-$1 server=()
	shift
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	if [ "$GUEST" = a ]; then
		serve 18515 "$name" "${server[@]}" >/tmp/server-out
		cat /tmp/server-out
	else
		client "$name" "$@" >/tmp/out
		cat /tmp/out
	fi
}

# The bandwidth follows from the iterations that perftest reports. Its own figure is 0 if it
# cannot tell the rate of its clock.
perftest() {
	local name=$1
	shift
	# C siw cannot listen on several devices at once.
	two "$name" "$@" -R -F -d "$DEV" --bind_source_ip "$A4" -- "$@" -R -F -d "$DEV" --report_gbits "$A4"
}

figure() { echo "$PLACE $CONTENDER $1 $2" >>"$OUT/figures"; }

# figures AWK: records each line of "MEASURE VALUE" that AWK makes of the client's output.
figures() {
	local measure value
	[ "$GUEST" = b ] || return 0
	while read -r measure value; do
		# rxe gets stuck at times. perftest then reports an infinite latency.
		case $measure:$value in
		*-memory:0) figure "$measure" 0 ;;
		*: | *:0 | *:0.000000 | *:0.00 | *:inf) ;;
		*) figure "$measure" "$value" ;;
		esac
	done <<<"$(awk "$1" /tmp/out)"
}

bandwidth() {
	local op=$1 size=$2
	if is_tcp; then
		[ "$op" = write ] || return 0
		# iperf3 takes no larger blocks, and they would not change a stream.
		stream "tcp-$size" $((size < 1048576 ? size : 1048576))
		figures "/receiver/ { print \"bw-write-$size\", \$7 / 1e6 }"
	else
		perftest "bw-$op-$size" "ib_${op}_bw" -s "$size" -D "$BENCH_SECONDS"
		figures "\$1 == $size { print \"bw-$op-$size\", \$2 * $size * 8e-9 / $BENCH_SECONDS }"
	fi
}

# stream NAME BLOCK: one over plain TCP. STREAM has more options for it.
stream() {
	two "$1" iperf3 -s -1 -p 18515 -- iperf3 -c "$A4" -p 18515 -t "$BENCH_SECONDS" -l "$2" -f k ${STREAM:+"$STREAM"}
}

part_bw() {
	local op size
	for op in write send read; do
		for size in $BENCH_BW_SIZES; do
			bandwidth $op "$size"
		done
	done
}

part_sizes() {
	local size
	for size in $MORE_SIZES; do
		bandwidth write "$size"
	done
}

part_rate() {
	local n
	! is_tcp || return 0
	for n in 1 16; do
		perftest "rate-$n" ib_write_bw -s 64 -q "$n" -D "$BENCH_SECONDS"
		figures "\$1 == 64 { print \"rate-$n\", \$2 / 1e3 / $BENCH_SECONDS }"
	done
}

part_lat() {
	local op size
	for size in $BENCH_LAT_SIZES; do
		if is_tcp; then
			two "lat-tcp-$size" bench tcp-serve 18515 -- bench tcp "$A4" 18515 "$size" "$ROUND_TRIPS"
			figures "/^(median|p99) / { print \"lat-send-$size-\" \$1, \$2 }"
			continue
		fi
		for op in send write read; do
			perftest "lat-$op-$size" "ib_${op}_lat" -s "$size" -n "$ROUND_TRIPS"
			figures "\$1 == $size { print \"lat-$op-$size-median\", \$5; print \"lat-$op-$size-p99\", \$8 }"
		done
	done
}

# transfers OP N SIZE: runs a program that sleeps until something is complete.
transfers() {
	# With C siw the run is bounded, see serve, and many queue pairs take a while to connect.
	BOUND=$((20 + 5 * $2)) two "$part-$1-$2-$3" bench serve "$1" "$A4" 18515 "$2" -- \
		bench "$1" "$A4" 18515 "$2" "$3" $((BENCH_SECONDS * 1000))
}

part_qps() {
	local n
	! is_tcp || return 0
	for n in $QPS; do
		transfers write "$n" 65536
		figures "/^(gbps|jain|memory) / { print \"qps-$n-\" \$1 \"$CPUS\", \$2 }
			/^busy / { busy = \$2 }
			/^bytes / { print \"qps-$n-cpu$CPUS\", busy * 1e9 / (\$2 / 1024) }"
	done
}

part_regions() {
	local n
	! is_tcp || return 0
	for n in $REGIONS; do
		BOUND=$((20 + n / 10000)) two "regions-$n" bench serve write "$A4" 18515 1 -- \
			bench regions "$A4" 18515 "$n" $((BENCH_SECONDS * 500))
		figures "/^(reg|memory|rate|dereg) / { print \"regions-$n-\" \$1, \$2 }"
	done
}

# What takes our provider library, or the extensions of RFC 7306, beside what programs use without it.
part_atomics() {
	local op kind
	for op in atomic read; do
		transfers $op 1 8
		figures "/^rate / { print \"ops-$op-8\", \$2 }"
		[ $op = read ] && kind=(ib_read_lat -s 8) || kind=(ib_atomic_lat)
		perftest "lat-$op-8" "${kind[@]}" -n "$ROUND_TRIPS"
		figures "\$1 == 8 { print \"lat-$op-8-median\", \$5; print \"lat-$op-8-p99\", \$8 }"
	done
}

part_immediate() {
	local op size
	for op in write_imm write_send; do
		for size in 64 4096; do
			transfers $op 1 $size
			figures "/^rate / { print \"ops-$op-$size\", \$2 }"
			two "lat-$op-$size" bench echo $op "$A4" 18515 -- bench ping $op "$A4" 18515 $size $((ROUND_TRIPS / 4))
			figures "/^(median|p99) / { print \"lat-$op-$size-\" \$1, \$2 }"
		done
	done
}

part_windows() {
	[ "$CONTENDER" = siw-ours ] || return 0
	two windows bench serve write "$A4" 18515 1 -- bench bind "$A4" 18515 $((BENCH_SECONDS * 500))
	figures "/^(bind|reg-small) / { print }"
}

# Bandwidth of programs that do not poll, like iperf3.
part_sleeping() {
	local op size
	! is_tcp || return 0
	for op in write send read; do
		for size in $BENCH_BW_SIZES; do
			transfers $op 1 "$size"
			figures "/^gbps / { print \"sleeping-$op-$size\", \$2 }"
		done
	done
}

# The speed of a queue pair without and beside one that is stalled.
part_beside() {
	case $CONTENDER:$KERNEL in
	siw:stock) beside_peer && beside page ;;
	siw:*) beside_peer ;; # without userfaultfd
	siw-ours:*)
		echo 1000000 >"/sys/class/infiniband/$DEV/settings/ctrl_delay_us"
		beside bind
		echo 0 >"/sys/class/infiniband/$DEV/settings/ctrl_delay_us"
		;;
	esac
}

beside_peer() {
	local stalled
	if [ "$GUEST" = a ]; then
		"$TESTS/peer/stall.py" "$A4" 7474 &
		stalled=$!
		until_true 20 tcp_listens 7474
	fi
	beside peer 7474
	[ "$GUEST" = b ] || kill $stalled
}

# beside KIND [STALLED]: by what the other queue pair is stalled, and how bench calls it.
beside() {
	local times=8 pairs=1
	[ "$1" = peer ] || pairs=$((1 + times))
	two "beside-$1" bench serve write "$A4" 18515 $pairs -- \
		bench beside "$A4" 18515 "${2:-$1}" 65536 $((BENCH_SECONDS * 500)) $times
	figures "/^(without|beside) / { print \"stalled-$1-\" \$1, \$2 }"
}

# The same memory, pinned and on demand, by turns.
part_odp() {
	local op turn kind options
	[ "$CONTENDER" = siw ] || return 0
	for turn in 1 2 3; do
		for op in write send read; do
			for kind in pinned ondemand; do
				[ $kind = pinned ] && options=() || options=(--odp)
				perftest "$kind-$op-$turn" "ib_${op}_bw" -s 65536 -D "$BENCH_SECONDS" "${options[@]}"
				figures "\$1 == 65536 { print \"$kind-$op\", \$2 * 65536 * 8e-9 / $BENCH_SECONDS }"
			done
		done
	done
}

# CPU time in nanoseconds a KiB. In a shared kernel the figure of either end includes both.
part_cpu() {
	local before here there both out=/tmp/out
	[ "$GUEST" = b ] || out=/tmp/server-out
	if is_tcp; then
		before=$(busy)
		stream cpu 1M
		here=$(($(busy) - before))e-2
	else
		transfers write 1 1048576
		here=$(awk '$1 == "busy" { print $2 }' $out)
	fi
	if [ "$GUEST" = a ]; then
		echo "$here" >"$OUT/busy"
		signal "busy-$PLACE"
		return
	fi
	await "busy-$PLACE"
	there=$(cat "$OUT/busy")
	[ "$PLACE" = pair ] && both="($here + $there)" || both=$here
	figures "\$1 == \"bytes\" { kib = \$2 / 1024 }
		/receiver/ { split(\$3, span, \"-\"); kib = \$7 * 125 * span[2] / 1024 }
		END { print \"cpu-send\", $here * 1e9 / kib; print \"cpu-receive\", $there * 1e9 / kib; print \"cpu-both\", $both * 1e9 / kib }"
}

# What guests execute whose clock counts instructions: a nanosecond of CPU time is one of them. The
# programs sleep until something is complete.
part_instructions() {
	local n trips=() op=(write 1 1048576)
	for n in 1000 5000; do
		if is_tcp; then
			executed two "trips-$n" bench tcp-serve 18515 sleep -- bench tcp "$A4" 18515 64 $n sleep
		else
			executed perftest "trips-$n" ib_send_lat -s 64 -n $n -e
		fi
		trips+=("$executed")
	done
	if is_tcp; then
		executed stream bytes 1M
	else
		executed transfers "${op[@]}"
	fi
	# Setting up, and what the shell does, takes the same in both runs.
	figures "\$1 == \"bytes\" { kib = \$2 / 1024 }
		/receiver/ { split(\$3, span, \"-\"); kib = \$7 * 125 * span[2] / 1024 }
		END { print \"instructions-trip\", (${trips[1]} - ${trips[0]}) / 4000
			print \"instructions-kib\", $executed / kib }"
}

# executed COMMAND...: sets executed to the instructions that both guests execute meanwhile, in
# guest b.
executed() {
	local before
	before=$(instructions)
	"$@"
	executed=$(($(instructions) - before))
	if [ "$GUEST" = a ]; then
		echo $executed >"$OUT/executed"
		signal executed
	else
		await executed
		executed=$((executed + $(cat "$OUT/executed")))
	fi
}

instructions() { awk '{ printf "%.0f\n", ($1 - $2) * 1e9 }' /proc/uptime; }

# One message at a time, there and back, by NetPIPE.
part_mpi() {
	local command=$OUT/mpi out=$OUT/mpi-out how
	[ "$PLACE" = pair ] || return 0
	case $CONTENDER in
	siw | siw-nocrc | c-siw) how=("${MPI_DEVICE[@]}") ;;
	tcp) how=(--mca pml ob1 --mca btl "tcp,self" --mca btl_tcp_if_include eth0) ;;
	*) return 0 ;;
	esac
	if [ "$GUEST" = a ]; then
		rm -f "$command" "$out"
		signal mpi
		mpi mpi_run "$command" 1 "${how[@]}" NPopenmpi -l 64 -u 1048576 -p 0 -n 30 -o "$out"
		signal mpi-ended
	else
		await mpi
		mpi mpi_join "$command"
		await mpi-ended
		[ -e "$out" ] || return 0
		cp "$out" /tmp/out
		# shellcheck disable=SC2016 # a program of awk
		figures '$1 == 64 || $1 == 4096 { print "lat-mpi-" $1, $3 * 1e6 }
			$1 == 65536 || $1 == 1048576 { print "bw-mpi-" $1, $2 / 1e3 }'
	fi
}

# mpi COMMAND...: runs one of mpi.sh, for two minutes at most: C siw takes longer at times.
# shellcheck disable=SC2016 # the inner shell expands it
mpi() { timeout 120 bash -c '. "$TESTS/guest/lib.sh"; . "$TESTS/guest/mpi.sh"; "$@"' - "$@" || true; }

# CPU time so far, in hundredths of a second.
busy() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }' /proc/stat; }

part_reg() {
	! is_tcp && [ "$GUEST" = b ] || return 0
	bench reg "$DEV" "$REG_MIB" >/tmp/out
	figures "{ print }"
}
