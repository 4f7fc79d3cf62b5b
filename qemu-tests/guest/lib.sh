# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the agent and the cases share, sourced in the guests.

# The two guests' addresses on eth0, and the other guest's.
A4=10.77.0.1 B4=10.77.0.2
A6=fd77::1 B6=fd77::2
if [ "${GUEST:-a}" = a ]; then
	MY4=$A4 MY6=$A6 PEER4=$B4 PEER6=$B6
else
	MY4=$B4 MY6=$B6 PEER4=$A4 PEER6=$A6
fi
read -r DRIVER PEER_DRIVER DRIVER_PARAMS </run/driver 2>/dev/null || true
# In one kernel no two devices have the same name.
NUMBER=0
[ -z "${SHARED:-}" ] || [ "$GUEST" = a ] || NUMBER=1
DEV=siw$NUMBER
[ "$DRIVER" != rxe ] || DEV=rxe$NUMBER
export DRIVER PEER_DRIVER DEV A4 B4 A6 B6 MY4 MY6 PEER4 PEER6

# network_up: the network as every case finds it.
network_up() {
	local path
	for path in /run/netns/*; do [ ! -e "$path" ] || ip netns del "${path##*/}"; done
	for path in /sys/class/net/*; do
		case ${path##*/} in lo | eth0) ;; *) ip link del "${path##*/}" 2>/dev/null || true ;; esac
	done
	echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
	tc qdisc del dev eth0 root 2>/dev/null || true
	tc qdisc del dev lo root 2>/dev/null || true
	tc qdisc del dev eth0 clsact 2>/dev/null || true
	[ -e /run/tcp_wmem ] || cat /proc/sys/net/ipv4/tcp_wmem >/run/tcp_wmem
	sndbuf auto
	[ ! -e /run/offloads ] || {
		xargs ethtool -K eth0 </run/offloads
		rm /run/offloads
	}
	ip -batch - <<-END
		addr flush dev lo scope global
		addr flush dev eth0 scope global
		link set lo up
		link set eth0 mtu 1500 up
		addr replace $MY4/24 dev eth0
		addr replace $MY6/64 dev eth0 nodad
	END
}

# without_offloads NAME...: of eth0, to the end of the case.
without_offloads() {
	printf '%s on ' "$@" >/run/offloads
	printf '%s off ' "$@" | xargs ethtool -K eth0
}

# load_driver DRIVER PEER-DRIVER [PARAM=VALUE...]: load it and put its device on eth0; DRIVER is
# siw (ours), c-siw, rxe or none.
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

# insert_driver: insmod, as load_driver did it, for cases that unload in between.
# C siw has no parameters: it gets none. In one kernel the first guest does it.
insert_driver() {
	[ "$DRIVER" != c-siw ] || DRIVER_PARAMS=
	# shellcheck disable=SC2016,SC2086 # expanded by the inner shell; words
	flock "${SHARED:-/run}" sh -c '[ -d /sys/module/siw ] || exec insmod "$@"' sh \
		"$OUT/mod/$DRIVER.ko" $DRIVER_PARAMS
}

# unload_driver: the end of every case. All objects of dead programs must be gone,
# and the module must go with its links still there. In one kernel the last guest does it.
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

# signal NAME: tell the other guest. await NAME [SECONDS]: until it signalled NAME.
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

# scaled N: as many, or a tenth of it where everything is watched and slow.
scaled() {
	case $KERNEL in
	sanitize | race | smp) echo $((($1 + 9) / 10)) ;;
	*) echo "$1" ;;
	esac
}

# exercised N WHAT: the summary of a run on the sanitizer kernel is to count it, for what no
# counter of a device tells.
exercised() { echo "${*:2} $1" >>"$OUT/$CASE/exercised.$GUEST"; }

# both NAME: go on when both guests are here.
both() {
	signal "$1"
	await "$1" "${2:-120}"
}

# nap SECONDS: sleep, without a program, which takes longer to start than most naps.
nap() {
	[ -p /run/silence ] || mkfifo /run/silence 2>/dev/null || true
	read -rt "$1" <>/run/silence || true
}

# until_true SECONDS CMD...: retry CMD, for states that nothing announces.
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

# listening PORT: someone listens, with rdma_cm, at that port. On iWARP that is a TCP
# port, and rdma's own list has it a moment too early.
listening() {
	if [ "$DRIVER" = rxe ]; then
		rdma resource show cm_id | grep -q "state LISTEN.*:$1"
	else
		tcp_listens "$1"
	fi
}

# counter NAME: what the device counted of it so far.
counter() { rdma statistic show link "$DEV/1" | sed -nE "s/.* $1 ([0-9]+).*/\\1/p"; }

# on_the_spot N CMD...: during CMD the device sends N times at least, and no datamover more than a few times.
on_the_spot() {
	local least=$1 direct moved
	direct=$(counter tx_direct) moved=$(counter mover_runs)
	"${@:2}"
	direct=$(($(counter tx_direct) - direct)) moved=$(($(counter mover_runs) - moved))
	echo "$direct turns on the spot, $moved of datamovers"
	[ $direct -ge "$least" ] && [ $((moved * 20)) -le "$least" ]
}

# sndbuf BYTES: of the connections to come; "auto" is the kernel's way. Every case begins with that.
sndbuf() {
	local least rest
	read -r least rest </run/tcp_wmem
	[ "$1" = auto ] || rest="$1 $1"
	echo "$least $rest" >/proc/sys/net/ipv4/tcp_wmem
}

# tcp_listens PORT: someone listens at that port of TCP. No program is started for it, as for nap.
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

# serve PORT EVENT CMD...: run a server to its end, telling the other guest with
# EVENT when it listens. client EVENT CMD...: run a client of it.
#
# C siw as the accepting side can sleep over the first message of a connection: its
# receive upcall gives up when it finds the QP being set up, and both programs then
# wait for ever. With it in either guest a pair is bounded, and run again on failure.
serve() {
	local port=$1 event=$2 pid try rc
	shift 2
	echo "+ $*"
	for try in $(tries); do
		# Not to take the last server's listener for this one's.
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

# bound TRY: in seconds. Later ones are longer, for machines where the first is too short.
bound() { echo $((${BOUND:-10} * ($1 + 1) / 2)); }

# bounded TRY CMD...: with C siw, within the bound of that try. READY: see src/libsecond.c.
bounded() {
	local try=$1 run
	shift
	run=("$@")
	case $1 in ib_*) run=(env LD_PRELOAD=/run/bin/libsecond.so "$@") ;; esac
	! c_siw_here || run=(timeout "$(bound "$try")" "${run[@]}")
	"${run[@]}"
}

# agree NAME TRY STATUS: with retries, whether the other side's half went well, too.
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
