# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Sourced by every script here and in qemu-tests/. It sets the places (SIW_TOP, SIW_CACHE), and has
# functions for progress, logs and the build root. Progress goes to standard error, so that standard
# output is free for results.

set -euo pipefail

SIW_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
SIW_CACHE=${SIW_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/siw}
SIW_LOGS=$SIW_TOP/build/log
SIW_LOG=$SIW_LOGS/$(basename "$0").log
SIW_SUITE=trixie
siw_script=$(readlink -f "$0") siw_args=("$@")
# The kernel that the caller wants.
SIW_KV=${KV:-}
# A user's path may lack the places of mke2fs and ip.
PATH=$PATH:/usr/sbin:/sbin
# These are determined below, whatever the environment says.
unset ROOT KVERSION
# The compiler the stock kernel was built with; part of the recorded configuration.
# shellcheck disable=SC2034 # for the scripts that source this
SIW_CC=x86_64-linux-gnu-gcc-14

# The packages of the build root. A change here makes a new root.
SIW_ROOT_PACKAGES="gcc make rustc cargo rust-src rustfmt rust-clippy bindgen clang lld libclang-dev llvm
flex bison bc libelf-dev libssl-dev pahole perl python3 kmod cpio xz-utils zstd shellcheck ca-certificates"

say() { printf '%s\n' "$*" >&2; }

die() {
	say "error: $*"
	exit 1
}

# The help of a script is the comment at its head, from which "#" and the licence are dropped here.
case ${1:-} in
-h | --help)
	awk 'NR > 1 && !/^#/ { exit } NR > 3 { sub(/^# ?/, ""); print }' "$0"
	exit
	;;
esac

# step TEXT CMD...: runs CMD with its output in the log, and prints how long it took.
step() {
	local text=$1 start=$SECONDS rc=0 from
	shift
	mkdir -p "$(dirname "$SIW_LOG")"
	[ "${siw_log_open:-}" = "$SIW_LOG" ] || : >"$SIW_LOG"
	siw_log_open=$SIW_LOG
	from=$(wc -l <"$SIW_LOG")
	printf '%-58s ' "==> $text" >&2
	printf '### %s\n' "$text" >>"$SIW_LOG"
	# In a subshell with errexit set again: "||" would switch it off inside CMD.
	set +e
	(
		set -e
		"$@"
	) >>"$SIW_LOG" 2>&1
	rc=$?
	set -e
	if [ "$rc" -ne 0 ]; then
		say "FAILED ($((SECONDS - start)) s)"
		tail -n +"$((from + 2))" "$SIW_LOG" | tail -n 20 | sed 's/^/    /' >&2
		say "    log: $SIW_LOG"
		exit "$rc"
	fi
	say "ok ($((SECONDS - start)) s)"
}

# need_packages PKG...: installs those of these Debian packages that are missing on this machine.
need_packages() {
	local pkg missing=()
	for pkg; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$pkg" 2>/dev/null)" = installed ] || missing+=("$pkg")
	done
	[ ${#missing[@]} -eq 0 ] && return
	if [ "$(id -u)" -ne 0 ] || [ -n "${SIW_NAMESPACE:-}" ]; then
		die "packages are missing. As root: apt install ${missing[*]}"
	fi
	step "Installing ${missing[*]}" install_packages "${missing[@]}"
}

install_packages() {
	local lock
	export DEBIAN_FRONTEND=noninteractive
	# Another run may be installing packages, or a machine that has just been set up.
	mkdir -p "$SIW_CACHE"
	exec {lock}>"$SIW_CACHE/apt.lock"
	flock "$lock"
	# A failed refresh (one dead third-party source) must not stop this. If it matters, the
	# installation fails.
	apt-get -q update || true
	apt-get -q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@"
}

# debian_mirror: prints the mirror that this machine's apt uses for Debian. The sources may be in
# the one-line or the deb822 form. A snapshot's date is dropped.
debian_mirror() {
	local codename mirror
	codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
	mirror=$(
		{
			cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
				sed -nE 's/^[[:space:]]*deb([[:space:]]+\[[^]]*\])?[[:space:]]+([^[:space:]]+)[[:space:]]+([^[:space:]]+).*/\2 \3/p'
			# One "URI suite..." line a stanza.
			awk '
				function flush() { if (uri != "" && !off) print uri, suites; uri = suites = ""; off = 0 }
				FNR == 1 || /^[ \t]*$/ { flush() }
				tolower($1) == "uris:" { uri = $2 }
				tolower($1) == "suites:" { $1 = ""; suites = $0 }
				tolower($1) == "enabled:" { off = (tolower($2) == "no") }
				END { flush() }
			' /etc/apt/sources.list.d/*.sources /dev/null 2>/dev/null
		} | awk -v name="$codename" '
			{ for (i = 2; i <= NF; i++) if ($i == name || $i == "stable") { print $1; exit } }'
	)
	# Cloud images name a file with a list of mirrors.
	case $mirror in mirror+file:*) mirror=$(awk '/^[a-z]+:/ { print $1; exit }' "${mirror#mirror+file:}") ;; esac
	[ -n "$mirror" ] || die "no Debian mirror found in /etc/apt/sources.list*"
	printf '%s\n' "$mirror" | sed -E 's,/+$,,; s,/[0-9]{8}T[0-9]{6}Z$,,'
}

# make_debian DIR OPTION...: makes a small Debian of SIW_SUITE, with its backports, in DIR. The options
# are mmdebstrap's.
make_debian() {
	local dir=$1 mirror proxy
	shift
	mirror=$(debian_mirror)
	eval "$(apt-config shell proxy Acquire::http::Proxy)"
	# The release files of a mirror that is a dated copy have expired.
	mmdebstrap --variant=minbase --dpkgopt='force-unsafe-io' \
		--aptopt='Acquire::Check-Valid-Until "false"' \
		${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\""} "$@" \
		"$SIW_SUITE" "$dir" \
		"deb $mirror $SIW_SUITE main" \
		"deb $mirror $SIW_SUITE-updates main" \
		"deb $mirror $SIW_SUITE-backports main"
}

short_hash() { sha256sum | cut -c1-12; }

# The directories of the cache, each with a key of the inputs that it was made from.
siw_root_dir() {
	local key
	key=$(printf '%s\n' "3 $SIW_SUITE" "$SIW_ROOT_PACKAGES" | short_hash)
	printf '%s\n' "$SIW_CACHE/root-$key"
}

# need_privileges: the build root takes chroot and mounts, which root has, but not in every container.
# Others have them in a user namespace of their own, where the system allows those. The script begins
# anew in one.
need_privileges() {
	local namespace=(unshare --user --map-root-user --map-auto --mount)
	! unshare --mount true 2>/dev/null || return 0
	[ "$(id -u)" -ne 0 ] || die "root may not mount here: start the container with --privileged"
	# Where it is refused, unshare --map-auto waits forever for its helper, so it is tried without.
	if unshare --user true 2>/dev/null; then
		command -v newuidmap >/dev/null ||
			die "without root this needs a user namespace. As root: apt install uidmap"
		grep -qE "^($(id -un)|$(id -u)):" /etc/subuid || die "this user needs numbers for the users in a namespace. As root:
    usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $(id -un)
    with numbers that no other line of /etc/subuid and /etc/subgid has"
		export SIW_NAMESPACE=1
		exec "${namespace[@]}" bash "$siw_script" "${siw_args[@]}"
	fi
	die "without root this needs a user namespace, and this system gives you none.
    Put 'sudo' before the command, or run su -c 'COMMAND'. The cache is then root's ~/.cache/siw, or that
    of SIW_CACHE=DIR. Without root, only 'make KDIR=DIR', 'make help' and --help work."
}

# need_root: makes the build root if it is missing; sets ROOT.
need_root() {
	[ -n "${ROOT:-}" ] && return
	need_privileges
	ROOT=$(siw_root_dir)
	is_cached "$ROOT" || "$SIW_TOP/scripts/toolchain" >/dev/null
}

# The kernels on offer: a line "RELEASE PACKAGE-VERSION" for each kernel that the archive has with
# its exact source, newest first, including those without Rust. The list is as old as the last
# refresh.
siw_offered() { cat "$ROOT/etc/siw-kernels"; }

# The kernels known to work with this driver, newest first.
siw_known() { cat "$SIW_TOP/scripts/known-kernels"; }

refresh_offered() {
	local kv version sources lock
	exec {lock}>"$ROOT/etc/siw-kernels.lock"
	flock "$lock"
	in_root apt-get -q update
	# shellcheck disable=SC2016 # expanded by the inner shell
	sources=$(in_root sh -c 'apt-cache madison $(apt-cache pkgnames linux-source-)')
	while read -r kv version; do
		! grep -qE "^ *linux-source-$(siw_series "$kv") \| ${version//+/\\+} " <<<"$sources" || echo "$kv $version"
	done < <(in_root apt-cache pkgnames linux-headers- | grep -E '^linux-headers-[0-9.]+\+deb[0-9]+(-cloud|-rt)?-amd64$' |
		in_root xargs -r apt-cache show --no-all-versions |
		awk '/^Package: / { kv = substr($2, 15) } /^Version: / { print kv, $2 }') |
		sort -rV >"$ROOT/etc/siw-kernels.new"
	# It is empty after a refresh that failed halfway.
	[ -s "$ROOT/etc/siw-kernels.new" ]
	mv "$ROOT/etc/siw-kernels.new" "$ROOT/etc/siw-kernels"
	exec {lock}>&-
}

# A kernel that became known after the last refresh may be on offer now.
offered_is_old() { [ "$SIW_TOP/scripts/known-kernels" -nt "$ROOT/etc/siw-kernels" ]; }

offered_is_fresh() { [ -n "$(find "$ROOT/etc/siw-kernels" -mmin -10)" ]; }

# siw_series RELEASE: 7.3 for 7.3.4+deb13-amd64.
siw_series() { sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$1"; }

# need_release: chooses a kernel: the one that KV in the environment names, or else the newest known
# one that the archive offers, or else the newest on offer. Sets KV, its release, and KVERSION, its
# package's version.
need_release() {
	local kv
	[ -n "${KVERSION:-}" ] && return
	need_root
	if [ -n "$SIW_KV" ]; then
		KV=$SIW_KV
		KVERSION=$(siw_offered | awk -v kv="$KV" '$1 == kv { print $2 }')
		[ -n "$KVERSION" ] || {
			step "Looking for $KV in the archive" refresh_offered
			KVERSION=$(siw_offered | awk -v kv="$KV" '$1 == kv { print $2 }')
		}
		[ -n "$KVERSION" ] || die "the archive has no kernel $KV with its source; it has:
$(siw_offered | awk '{ print "    " $1 }')"
		return
	fi
	! offered_is_old || step "Looking for known kernels in the archive" refresh_offered
	read -r KV KVERSION < <(
		for kv in $(siw_known); do siw_offered | grep -F "$kv " || true; done
		siw_offered | grep -E '^[0-9.]+\+deb[0-9]+-amd64 '
	) || die "the archive offers no kernel"
}

# tell_release: prints which kernel is used, if that may come as a surprise.
tell_release() {
	local newest
	newest=$(siw_offered | awk '$1 ~ /deb[0-9]+-amd64$/ && !n++ { print $1 }')
	if ! grep -qxF "$(sed -E 's/-(cloud|rt)-/-/' <<<"$KV")" <<<"$(siw_known)"; then
		say "==> $KV is not one of the kernels known to work (scripts/known-kernels)"
	elif [ "$newest" != "$KV" ] && ! grep -qxF "$newest" <<<"$(siw_known)"; then
		say "==> Using $KV, the newest kernel known to work; the archive has $newest, too (KV=$newest tries it)"
	fi
}

siw_kernel_key() { printf '%s' "$KVERSION ${ROOT##*-}" | short_hash; }
siw_kernel_dir() { printf '%s\n' "$SIW_CACHE/kernel-$KV-$(siw_kernel_key)"; }

# need_kernel: makes the kernel tree if it is missing; sets S (its source), O (its build directory)
# and STOCK (the kernel's packages).
need_kernel() {
	local dir
	need_release
	dir=$(siw_kernel_dir)
	is_cached "$dir" || {
		"$SIW_TOP/scripts/kernel" >/dev/null
		# The archive may have changed.
		unset KVERSION
		need_release
		dir=$(siw_kernel_dir)
	}
	# shellcheck disable=SC2034 # for the scripts that source this
	S=$SIW_CACHE/source-$(siw_kernel_key) O=$dir/build STOCK=$dir/stock
}

# The same for the test kernels, which are made from the stock kernel's source. KIND is sanitize,
# race (with several CPUs) or bench (for measuring at native speed), which are User Mode Linux, or
# smp, for guests in QEMU.

# own_config KIND: prints its options. Kernels other than sanitize take the rest of their options
# from sanitize.config.
own_config() {
	local config=$SIW_TOP/scripts/sanitize.config shared="The machine"
	[ "$1" != smp ] || shared="What programs need"
	case $1 in
	sanitize) cat "$config" ;;
	*)
		awk -v shared="# $shared" '
			{ name = $0; sub(/^# /, "", name); sub(/[= ].*/, "", name) }
			FNR == NR { if (name ~ /^CONFIG_/) own[name]; print; next }
			index($0, shared) == 1 { on = 1 }
			on && !(name in own)' "$SIW_TOP/scripts/$1.config" "$config"
		;;
	esac
}

siw_own_dir() {
	# Changes of the build, other than of the configuration, need another number here.
	printf '%s\n' "$SIW_CACHE/$1-$KV-$(siw_kernel_key)-$( (echo 1; own_config "$1" | grep -E '^(# )?CONFIG_') | short_hash)"
}

need_own_kernel() {
	local dir
	need_kernel
	dir=$(siw_own_dir "$1")
	is_cached "$dir" || "$SIW_TOP/scripts/own-kernel" "$1" >/dev/null
	O=$dir/build
}

# own_make KIND ARG...: runs make for it. Rust and KASAN together need clang, and SMP in User Mode
# Linux works with gcc only.
own_make() {
	local args
	case $1 in
	smp) args=(ARCH=x86 LLVM=1) ;;
	# A header of UML causes the warning.
	sanitize) args=(ARCH=um LLVM=1 KCFLAGS=-Wno-null-pointer-arithmetic) ;;
	*) args=(ARCH=um "CC=$SIW_CC") ;;
	esac
	# UML loads modules more than 2 GB away from the kernel, but its flags for Rust code do not allow
	# for that.
	[ "$1" = smp ] || args+=("RUSTFLAGS_MODULE=-Crelocation-model=static -Ccode-model=large")
	shift
	in_root make -C "$S" "O=$O" "${args[@]}" -j"$(nproc)" "$@"
}

# in_root CMD...: runs CMD in the build root, in this directory. The checkout and the cache are
# there at the same paths. The mounts are in a mount namespace of this one command, so nothing is
# left behind and several can run side by side.
in_root() {
	local root=${IN_ROOT:-$ROOT}
	# shellcheck disable=SC2016 # expanded by the inner shell
	unshare --mount --propagation private -- bash -euc '
		root=$1 top=$2 cache=$3 here=$PWD
		shift 3
		for d in /proc /dev /sys "$top" "$cache"; do
			mkdir -p "$root$d"
			mount --rbind "$d" "$root$d"
		done
		if [ -e /etc/resolv.conf ]; then
			[ -e "$root/etc/resolv.conf" ] || : >"$root/etc/resolv.conf"
			mount --bind "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
		fi
		case $here/ in "$top"/* | "$cache"/*) ;; *) here=$top ;; esac
		exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" DEBIAN_FRONTEND=noninteractive \
			${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
			chroot "$root" sh -c "cd \"\$1\" && shift && exec \"\$@\"" sh "$here" "$@"
	' bash "$root" "$SIW_TOP" "$SIW_CACHE" "$@"
}

# need_cargo: finds a cargo for rust/iwarp: this machine's, or the build root's if there is none or
# it is too old.
need_cargo() {
	local oldest rustc
	oldest=$(sed -nE 's/^rust-version = "(.*)"/\1/p' "$SIW_TOP/rust/iwarp/Cargo.toml")
	if rustc=$(rustc --version 2>/dev/null) && command -v cargo >/dev/null &&
		printf '%s\n' "$oldest" "$(cut -d' ' -f2 <<<"$rustc")" | sort -CV; then
		SIW_CARGO_IN=
	else
		need_root
		mkdir -p "$SIW_CACHE/cargo"
		SIW_CARGO_IN=$ROOT
	fi
}

# with_cargo CMD...: runs CMD where the cargo of need_cargo is, in this directory.
with_cargo() {
	if [ -z "$SIW_CARGO_IN" ]; then
		"$@"
	else
		in_root env "CARGO_HOME=$SIW_CACHE/cargo" "$@"
	fi
}

# is_cached DIR: whether that directory of the cache exists and is complete.
is_cached() { [ -e "$1/.siw-complete" ]; }

# make_cached DIR CMD...: fills DIR with CMD, once; other processes wait. DIR has its final name
# from the start, because a kernel build records its own path. A mark shows that it is complete, and
# the leftovers of an interrupted run are removed.
make_cached() {
	local dir=$1 lock
	shift
	is_cached "$dir" && return
	mkdir -p "$SIW_CACHE"
	exec {lock}>"$dir.lock"
	flock -n "$lock" || {
		say "==> Waiting for another process that makes $(basename "$dir")"
		flock "$lock"
	}
	if ! is_cached "$dir"; then
		rm -rf --one-file-system "$dir"
		mkdir "$dir"
		"$@" "$dir"
		touch "$dir/.siw-complete"
	fi
	exec {lock}>&-
}
