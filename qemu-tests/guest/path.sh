# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shared by the cases of cases/path, where paths between the guests fail under checked traffic.

steps=0
# together: waits until the other guest is here, too.
together() { both "step-$((steps += 1))"; }

# traffic ADDRESS [LANES]: starts that traffic, and waits until its connections are up. Guest a
# listens at its ADDRESS, guest b connects to its own.
traffic() {
	lanes=${2:-3}
	stdbuf -oL ibv_asyncwatch -d "$DEV" >/run/async.out 2>&1 &
	watch=$!
	until_true 60 grep -q "$DEV" /run/async.out
	if [ "$GUEST" = a ]; then
		verify server "$1" endless 3600 "$lanes" >/run/verify.out 2>&1 &
		program=$!
		until_true 60 listening_or_gone 7472 "$program"
		signal "listening-$steps"
	else
		await "listening-$steps"
		verify client "$1" endless 3600 "$lanes" >/run/verify.out 2>&1 &
		program=$!
	fi
	until_true 60 up_or_over
	undisturbed
	objects >/run/objects
	together
}

up_or_over() { grep -q '^up' /run/verify.out || over; }
over() { ! kill -0 "$program" 2>/dev/null; }
objects() {
	rdma resource show qp link "$DEV/1"
	rdma resource show mr dev "$DEV"
}

# undisturbed: whether the program runs and has got no event of its connections or device. The core
# does not know at first that a port is active, so it says so at the first change of a bond.
undisturbed() {
	! over && [ "$(cat /run/verify.out)" = up ] && [ "$(grep -vc PORT_ACTIVE /run/async.out)" = 1 ] && return
	cat /run/verify.out /run/async.out
	return 1
}

# arrives: waits until more has arrived than the eight rounds of a lane, three messages each, that
# could be on their way. The traffic still has the same queue pairs and regions.
arrives() {
	until_true 40 more_than $(($(received) + lanes * 8 * 3 * 70000))
	undisturbed
	objects | diff /run/objects -
}
more_than() { [ "$(received)" -gt "$1" ] || over; }
received() {
	ss -Htin '( sport = :7472 or dport = :7472 )' |
		sed -n 's/.* bytes_received:\([0-9]*\).*/\1/p' | awk '{ sum += $1 } END { print sum + 0 }'
}

# goes_on: the same in both guests.
goes_on() {
	arrives
	together
}

# end_traffic: guest b disconnects. Either end has found all data right.
end_traffic() {
	undisturbed
	together
	[ "$GUEST" = a ] || kill "$program"
	verdict
}

# verdict: waits for the program, which must succeed.
verdict() {
	until_true 60 over
	wait "$program" || {
		cat /run/verify.out
		return 1
	}
	grep pause /run/verify.out
	exercised "$(sed -n 's/ rounds$//p' /run/verify.out)" "rounds checked"
	kill "$watch"
}

# silence NIC: from now on all that this guest sends there is lost.
silence() { tc qdisc replace dev "$1" root netem loss 100%; }

# lose NIC HOW, regain NIC HOW: the path over that NIC of this guest goes, and comes back.
lose() {
	case $2 in
	silent) silence "$1" ;;
	down) ip link set "$1" down ;;
	unplugged) unplug "$1" ;;
	removed) remove_nic "$1" ;;
	"without address") ip addr flush dev "$1" scope global ;;
	esac
}
regain() {
	case $1-$2 in
	*-silent) tc qdisc del dev "$1" root ;;
	*-unplugged) plug "$1" ;;
	# An IPv6 address has gone with the link.
	eth0-*) nic_up eth0 "$MY4" "$MY6" ;;
	eth1-*) nic_up eth1 "$MY4_1" "$MY6_1" ;;
	esac
}

# sessions 1: later connections go on over another path, if the peer has it, too. sessions 0: they end.
sessions() { echo "$1" >"/sys/class/infiniband/$DEV/settings/resume"; }

# said WORD: how many connections have said that.
said() { grep -c ": $1\$" /run/verify.out || true; }

# parted: whether all connections are between two paths.
parted() { [ "$(grep -c Suspended "/sys/kernel/debug/siw/$DEV/qps")" = "$lanes" ] || over; }
