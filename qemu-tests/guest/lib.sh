# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shared by the agent and the cases, and sourced in the guests.

# The two guests' addresses on eth0, and the other guest's. Those with _1 are on eth1, if the case
# asks for two NICs.
A4=10.77.0.1 B4=10.77.0.2 A4_1=10.77.1.1 B4_1=10.77.1.2
A6=fd77::1 B6=fd77::2 A6_1=fd77:1::1 B6_1=fd77:1::2
if [ "${GUEST:-a}" = a ]; then
	MY4=$A4 MY6=$A6 PEER4=$B4 PEER6=$B6 MY4_1=$A4_1 MY6_1=$A6_1 PEER4_1=$B4_1 PEER6_1=$B6_1
else
	MY4=$B4 MY6=$B6 PEER4=$A4 PEER6=$A6 MY4_1=$B4_1 MY6_1=$B6_1 PEER4_1=$A4_1 PEER6_1=$A6_1
fi
read -r DRIVER PEER_DRIVER DRIVER_PARAMS </run/driver 2>/dev/null || true
# In a shared kernel the devices need different names.
NUMBER=0
[ -z "${SHARED:-}" ] || [ "$GUEST" = a ] || NUMBER=1
DEV=siw$NUMBER
[ "$DRIVER" != rxe ] || DEV=rxe$NUMBER
export DRIVER PEER_DRIVER DEV A4 B4 A6 B6 MY4 MY6 PEER4 PEER6
export A4_1 B4_1 A6_1 B6_1 MY4_1 MY6_1 PEER4_1 PEER6_1

# network_up: puts the network into the state that every case starts with.
network_up() {
	local path nic
	for path in /run/netns/*; do [ ! -e "$path" ] || ip netns del "${path##*/}"; done
	for path in /sys/class/net/*; do
		case ${path##*/} in lo | eth[01]) ;; *) ip link del "${path##*/}" 2>/dev/null || true ;; esac
	done
	tc qdisc del dev lo root 2>/dev/null || true
	[ -e /run/tcp_wmem ] || cat /proc/sys/net/ipv4/tcp_wmem >/run/tcp_wmem
	sndbuf auto
	[ ! -e /run/offloads ] || {
		xargs ethtool -K eth0 </run/offloads
		rm /run/offloads
	}
	ip -batch - <<-END
		addr flush dev lo scope global
		link set lo up
	END
	nic_up eth0 $MY4 $MY6
	[ "$NICS" = 1 ] || nic_up eth1 $MY4_1 $MY6_1
	for nic in eth0 eth1; do [ ! -e /run/unplugged.$nic ] || plug $nic; done
}

# nic_up NIC IPV4 IPV6: puts a NIC into that state.
nic_up() {
	[ -e "/sys/class/net/$1" ] || insert_nic "$1"
	echo 0 >"/proc/sys/net/ipv6/conf/$1/accept_dad"
	tc qdisc del dev "$1" root 2>/dev/null || true
	tc qdisc del dev "$1" clsact 2>/dev/null || true
	ip -batch - <<-END
		addr flush dev $1 scope global
		link set $1 mtu 1500 up
		addr replace $2/24 dev $1
		addr replace $3/64 dev $1 nodad
	END
}

# The verbs below are for cases with two NICs. In a shared kernel, wires in a namespace of their own
# join the guests.
#
# unplug NIC, plug NIC: pulls the cable of a NIC that is up, or puts it back, and waits until the
# NIC knows. The other guest's NIC does not see it.
unplug() {
	touch "/run/unplugged.$1"
	cable "$1" down
	until_true 20 carrier_is "$1" 0
}

plug() {
	cable "$1" up
	until_true 20 carrier_is "$1" 1
	rm -f "/run/unplugged.$1"
}

cable() {
	if [ -n "${SHARED:-}" ]; then
		on_wires ip link set "$GUEST-$1" "$2"
	else
		echo "link ${1#eth} $2" >&3
	fi
}

carrier_is() { [ "$(cat "/sys/class/net/$1/carrier")" = "$2" ]; }
on_wires() { nsenter --net="$SHARED/netns/wires" "$@"; }

# remove_nic NIC, insert_nic NIC: removes a network adapter without warning, or brings it back.
remove_nic() {
	if [ -n "${SHARED:-}" ]; then
		ip link del "$1"
	else
		echo 1 >"/sys/class/net/$1/device/../remove"
	fi
}

insert_nic() {
	if [ -n "${SHARED:-}" ]; then
		ip link add "$1" type veth peer name "$GUEST-$1" netns "$SHARED/netns/wires"
		on_wires ip link set "$GUEST-$1" master "$1" up
	else
		echo 1 >/sys/bus/pci/rescan
	fi
}

# without_offloads NAME...: switches them off on eth0, until the end of the case.
without_offloads() {
	printf '%s on ' "$@" >/run/offloads
	printf '%s off ' "$@" | xargs ethtool -K eth0
}

# load_driver DRIVER PEER-DRIVER [PARAM=VALUE...]: loads DRIVER and adds its device on eth0.
# DRIVER is siw (this one), c-siw, rxe or none.
load_driver() {
	echo "$@" >/run/driver
	read -r DRIVER PEER_DRIVER DRIVER_PARAMS </run/driver
	case $DRIVER in
	none) return ;;
	rxe)
		modprobe rdma_rxe
		rdma link add rxe$NUMBER type rxe netdev eth0
		;;
	*)
		insert_driver
		rdma link add siw$NUMBER type siw netdev eth0
		;;
	esac
}

# insert_driver: insmod with the parameters of load_driver, for cases that unload in between. C
# siw has no parameters. In a shared kernel the first guest loads the driver.
insert_driver() {
	[ "$DRIVER" != c-siw ] || DRIVER_PARAMS=
	# shellcheck disable=SC2016,SC2086 # expanded by the inner shell; words
	flock "${SHARED:-/run}" sh -c '[ -d /sys/module/siw ] || exec insmod "$@"' sh \
		"$OUT/mod/$DRIVER.ko" $DRIVER_PARAMS
}

# unload_driver: the end of every case. All objects of dead programs must be gone, and the module
# must unload although its links still exist. In a shared kernel the last guest unloads it.
unload_driver() {
	local module left tries=100
	if [ -n "${SHARED:-}" ]; then
		! mkdir "$SHARED/left" 2>/dev/null || return 0
		rmdir "$SHARED/left"
	fi
	for module in siw rdma_rxe; do
		[ -d "/sys/module/$module" ] || continue
		# rxe has objects of its own.
		while left=$(rdma resource show | grep -v ': rxe' | grep -E '(qp|cq|pd|mr|cm_id|ctx|srq) [1-9]'); do
			if [ $((tries -= 1)) -eq 0 ]; then
				echo "left behind: $left"
				return 1
			fi
			nap 0.1
		done
		rmmod "$module"
	done
}

# signal NAME: signals NAME to the other guest. await NAME [SECONDS]: waits until the other guest
# signals NAME. Work that takes TEST_SECONDS is awaited for 3000 seconds; the time-out of the case is
# shorter, except in make soak.
signal() { echo "event $1" >&3; }
await() {
	local fifo=/run/event/$1 fd
	[ -p "$fifo" ] || mkfifo "$fifo" 2>/dev/null || true
	exec {fd}<>"$fifo"
	read -rt "${2:-120}" -u "$fd" || {
		echo "no event $1 from the other guest" >&2
		return 1
	}
	exec {fd}>&-
}

# scaled N: prints N, or a tenth of it on the kernels that are slow because of their checks.
scaled() {
	case $KERNEL in
	sanitize | race | smp) echo $((($1 + 9) / 10)) ;;
	*) echo "$1" ;;
	esac
}

# exercised N WHAT: adds a figure to the summary of a run on the sanitizer kernel, for things that
# no counter of a device shows.
exercised() { echo "${*:2} $1" >>"$OUT/$CASE/exercised.$GUEST"; }

# both NAME: waits until both guests are here.
both() {
	signal "$1"
	await "$1" "${2:-120}"
}

# nap SECONDS: sleeps without starting a program, which would take longer than most naps.
nap() {
	[ -p /run/silence ] || mkfifo /run/silence 2>/dev/null || true
	read -rt "$1" <>/run/silence || true
}

# reach [OPTION...] ADDRESS: waits until the other guest answers a ping, so that its neighbour entry is
# there. rdma_cm asks for that once and waits for the answer, which it misses if it comes first
# (rdma_resolve_ip), or for its time-out, up to a minute in some programs.
reach() { until_true 20 ping -q -c 1 -W 1 "$@"; }

# until_true SECONDS CMD...: repeats CMD until it succeeds, for states that no event announces.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || {
			echo "not in time: $*" >&2
			return 1
		}
		nap 0.05
	done
}

# netns_mode MODE: "shared" or "exclusive" devices. The core refuses it while a second network
# namespace exists, and the kernel ends one after `ip netns del` has returned.
netns_mode() { until_true 20 rdma system set netns "$1" 2>/dev/null; }

# listening PORT: whether a program listens with rdma_cm at that port. On iWARP that is a TCP
# port, which rdma's own list shows a moment too early.
listening() {
	if [ "$DRIVER" = rxe ]; then
		rdma resource show cm_id | grep -q "state LISTEN.*:$1"
	else
		tcp_listens "$1"
	fi
}

# counter NAME: prints the device's counter.
counter() { rdma statistic show link "$DEV/1" | sed -nE "s/.* $1 ([0-9]+).*/\\1/p"; }

# on_the_spot N CMD...: fails unless the device has N turns on the spot or more during CMD, and
# only few turns of datamovers.
on_the_spot() {
	local least=$1 direct moved
	direct=$(counter tx_direct) moved=$(counter mover_runs)
	"${@:2}"
	direct=$(($(counter tx_direct) - direct)) moved=$(($(counter mover_runs) - moved))
	echo "$direct turns on the spot, $moved of datamovers"
	[ $direct -ge "$least" ] && [ $((moved * 20)) -le "$least" ]
}

# sndbuf BYTES: sets the send buffer of later connections. "auto", with which every case begins,
# leaves it to the kernel.
sndbuf() {
	local least rest
	read -r least rest </run/tcp_wmem
	[ "$1" = auto ] || rest="$1 $1"
	echo "$least $rest" >/proc/sys/net/ipv4/tcp_wmem
}

# tcp_listens PORT: whether a socket listens at that TCP port. Like nap, it starts no program.
tcp_listens() {
	local port file address state
	printf -v port %04X "$1"
	for file in /proc/net/tcp /proc/net/tcp6; do
		# Below the heading are the listening sockets, then all others.
		while read -r _ address _ state _; do
			case $state in
			st) ;;
			0A) [ "${address##*:}" != "$port" ] || return 0 ;;
			*) break ;;
			esac
		done <$file
	done
	return 1
}

# serve PORT EVENT CMD...: runs a server to its end, and signals EVENT to the other guest when it
# listens. client EVENT CMD...: runs a client of it.
#
# C siw, on the accepting side, can miss the first message of a connection: its receive upcall gives
# up when the QP is still being set up, and both programs then wait for ever. With C siw in either
# guest, server and client have a time limit, and run again after a failure.
serve() {
	local port=$1 event=$2 pid try rc
	shift 2
	echo "+ $*"
	for try in $(tries); do
		# The listener of the last server must not be taken for this one's.
		until_true 20 port_free "$port"
		export READY=$event-$try-again
		bounded "$try" "$@" &
		pid=$!
		until_true 60 listening_or_gone "$port" $pid
		signal "$event-$try"
		rc=0
		wait $pid || rc=$?
		agree "$event" "$try" $rc && return
	done
	return 1
}

client() {
	local event=$1 try rc
	shift
	echo "+ $*"
	for try in $(tries); do
		await "$event-$try"
		export READY=$event-$try-again
		rc=0
		bounded "$try" "$@" || rc=$?
		agree "$event" "$try" $rc && return
	done
	return 1
}

port_free() { ! tcp_listens "$1"; }
listening_or_gone() { listening "$1" || ! kill -0 "$2" 2>/dev/null; }

c_siw_here() { [ "$DRIVER" = c-siw ] || [ "$PEER_DRIVER" = c-siw ]; }

tries() { if c_siw_here; then echo 1 2 3 4 5 6; else echo 1; fi; }

# bound TRY: the time limit of a try, in seconds. Later ones are longer, for machines where the
# first is too short.
bound() { echo $((${BOUND:-10} * ($1 + 1) / 2)); }

# bounded TRY CMD...: runs CMD, with C siw within the bound of that try. READY: see
# src/libsecond.c.
bounded() {
	local try=$1 run
	shift
	run=("$@")
	case $1 in ib_*) run=(env LD_PRELOAD=/run/bin/libsecond.so "$@") ;; esac
	! c_siw_here || run=(timeout "$(bound "$try")" "${run[@]}")
	"${run[@]}"
}

# agree NAME TRY STATUS: whether both halves succeeded, if there are retries.
agree() {
	local event=$1-$2
	if ! c_siw_here; then
		return "$3"
	fi
	[ "$3" -eq 0 ] || echo "failed here (status $3)"
	signal "$event-status-$3"
	until_true $(($(bound "$2") + 5)) status_known "$event"
	[ "$3" -eq 0 ] && [ -p "/run/event/$event-status-0" ]
}

status_known() { compgen -G "/run/event/$1-status-*" >/dev/null; }
