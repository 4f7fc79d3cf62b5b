# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shared by the cases of cases/fault. Everything happens in guest a. A veth pair joins it to a
# namespace "far", with a device on either end, siw_n(ear) and siw_f(ar).

NEAR4=10.79.0.1 FAR4=10.79.0.2

# All random choices follow from the seed.
RANDOM=${TEST_SEED:=$(date +%s)}
echo "TEST_SEED=$TEST_SEED"

turns=0
# another_turn MIN: true for MIN turns at least, and for more while there is time.
another_turn() { [ $((turns += 1)) -le "$1" ] || [ $SECONDS -lt "${TEST_SECONDS:-25}" ]; }

in_far() { ip netns exec far "$@"; }

# pause_upto MS: pauses for a random time.
pause_upto() { sleep "$(printf '0.%03d' $((RANDOM % $1)))"; }

# fault_net: makes the parts of this network that are missing.
fault_net() {
	[ -e /run/netns/far ] || ip netns add far
	[ -e /sys/class/net/near0 ] || {
		ip link add near0 type veth peer name far0 netns far
		ip addr add "$NEAR4"/24 dev near0
		ip link set near0 up
		in_far ip addr add "$FAR4"/24 dev far0
		in_far ip link set far0 up
		in_far ip link set lo up
	}
	has siw_n || rdma link add siw_n type siw netdev near0
	has siw_f || in_far rdma link add siw_f type siw netdev far0
}

has() { rdma link show "$1/1" >/dev/null 2>&1; }
gone() { ! has "$1"; }

# traffic SECONDS: starts three connections with checked data between "near", which listens, and
# "far".
traffic() {
	rm -f /run/near.out /run/far.out
	verify server "$NEAR4" endless "$1" >/run/near.out 2>&1 &
	near=$!
	until_true 60 listening_or_gone 7472 "$near"
	# Without in_far, $! is the PID of the program itself.
	ip netns exec far verify client "$NEAR4" endless "$1" >/run/far.out 2>&1 &
	far=$!
}

up() { grep -q '^up' /run/near.out && grep -q '^up' /run/far.out; }
up_or_over() { up || ! kill -0 "$near" 2>/dev/null || ! kill -0 "$far" 2>/dev/null; }

# verdicts: waits for both programs. A connection may fail in any way, but completed data must be
# right and no program may hang. A killed program is no failure.
verdicts() {
	local side pid rc checked
	for side in near far; do
		pid=${!side} rc=0
		until_true 120 over "$pid"
		wait "$pid" || rc=$?
		case $rc in
		0 | 3 | 137) ;;
		*)
			echo "$side: status $rc"
			cat /run/$side.out
			return 1
			;;
		esac
		checked=$(sed -n 's/ rounds$//p' /run/$side.out)
		rounds=$((rounds + ${checked:-0}))
	done
}

# ends_under COUNTER CMD...: starts CMD, which would run for long, again and again. When that counter
# of siw_n has grown, the program is killed, or its device or the module removed.
ends_under() {
	local counter=$1 how program before
	shift
	while another_turn 2; do
		for how in program device module; do
			fault_net
			before=$(DEV=siw_n counter "$counter")
			"$@" >/run/program.out 2>&1 &
			program=$!
			until_true 60 grown "$counter" "$before"
			pause_upto 900
			over $program && cat /run/program.out && return 1
			echo "== $how"
			case $how in
			program) ;;
			device) rdma link delete siw_n ;;
			module)
				rmmod siw
				insert_driver
				;;
			esac
			# It may have ended by itself.
			kill -9 $program 2>/dev/null || true
			wait $program || true
			nothing_left
			ends=$((ends + 1))
		done
	done
}
ends=0
grown() { [ "$(DEV=siw_n counter "$1")" -gt "$2" ]; }

over() { ! kill -0 "$1" 2>/dev/null; }

# nothing_left: no device keeps an object of a dead program, and none of its pages stays pinned.
nothing_left() { until_true 30 no_objects && until_true 30 no_pins; }
no_pins() {
	# This updates the sums over all CPUs, if there can be several.
	cat /proc/sys/vm/stat_refresh 2>/dev/null || true
	awk '/^nr_foll_pin_acquired/ { pins = $2 } /^nr_foll_pin_released/ { pins -= $2 } END { exit pins != 0 }' /proc/vmstat
}
no_objects() { ! rdma resource show | grep -qE '(qp|cq|pd|mr|cm_id|ctx|srq) [1-9]'; }
rounds=0
