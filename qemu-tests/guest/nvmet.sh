# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The kernel's NVMe target over RDMA, for the cases that source this: one subsystem "siw"
# with one namespace, a RAM disk, at $A4 port 4420.

nvmet=/sys/kernel/config/nvmet

nvmet_up() {
	modprobe brd rd_nr=1 rd_size=65536
	modprobe nvmet
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
	nvmet_offer 1 siw rdma 4420
}

# nvmet_offer NUMBER NQN TRANSPORT PORT [ADDRESS]: the RAM disk in one more subsystem, at a port of its own.
# nvmet_withdraw NUMBER NQN: the end of that.
nvmet_offer() {
	local port=$nvmet/ports/$1 subsystem=$nvmet/subsystems/$2
	modprobe "nvmet-$3"
	mkdir "$subsystem" "$port"
	echo 1 >"$subsystem/attr_allow_any_host"
	mkdir "$subsystem/namespaces/1"
	echo /dev/ram0 >"$subsystem/namespaces/1/device_path"
	echo 1 >"$subsystem/namespaces/1/enable"
	echo "$3" >"$port/addr_trtype"
	echo ipv4 >"$port/addr_adrfam"
	echo "${5:-$A4}" >"$port/addr_traddr"
	echo "$4" >"$port/addr_trsvcid"
	ln -s "$subsystem" "$port/subsystems/"
}
nvmet_withdraw() {
	rm "$nvmet/ports/$1/subsystems/$2"
	rmdir "$nvmet/subsystems/$2/namespaces/1" "$nvmet/subsystems/$2" "$nvmet/ports/$1"
}

# nvmet_export, nvmet_hide: the port exists as long as it has a subsystem.
nvmet_export() { ln -s "$nvmet/subsystems/siw" "$nvmet/ports/1/subsystems/siw"; }
nvmet_hide() { rm "$nvmet/ports/1/subsystems/siw"; }

# The link goes too, because the core keeps its consumers' completion queues with the device.
nvmet_down() {
	nvmet_withdraw 1 siw
	rmmod nvmet-rdma nvmet
	rdma link delete "$DEV"
}

# nvme_connect NQN OPTION=VALUE...
nvme_connect() {
	local options="transport=rdma,traddr=$A4,trsvcid=4420,nqn=$1"
	shift
	# One write, without an end of line.
	printf %s "$(IFS=, && echo "$options,$*")" >/dev/nvme-fabrics
}

nvme_state() { [ "$(cat /sys/class/nvme/nvme0/state)" = "$1" ]; }
nvme_disk() { [ -b /dev/nvme0n1 ]; }
no_nvme() { ! compgen -G "/sys/class/nvme/nvme*" >/dev/null; }
nvme_disconnect() {
	local file
	for file in /sys/class/nvme/nvme*/delete_controller; do echo 1 >"$file"; done
	until_true 20 no_nvme
}
