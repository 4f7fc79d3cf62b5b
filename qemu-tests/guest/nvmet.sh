# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The kernel's NVMe target over RDMA, for the cases that source this: one subsystem "siw"
# with one namespace, a RAM disk, at $A4 port 4420.

nvmet=/sys/kernel/config/nvmet

nvmet_up() {
	modprobe brd rd_nr=1 rd_size=65536
	modprobe nvmet-rdma
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
	mkdir "$nvmet/subsystems/siw" "$nvmet/ports/1"
	echo 1 >"$nvmet/subsystems/siw/attr_allow_any_host"
	mkdir "$nvmet/subsystems/siw/namespaces/1"
	echo /dev/ram0 >"$nvmet/subsystems/siw/namespaces/1/device_path"
	echo 1 >"$nvmet/subsystems/siw/namespaces/1/enable"
	echo rdma >"$nvmet/ports/1/addr_trtype"
	echo ipv4 >"$nvmet/ports/1/addr_adrfam"
	echo "$A4" >"$nvmet/ports/1/addr_traddr"
	echo 4420 >"$nvmet/ports/1/addr_trsvcid"
	nvmet_export
}

# nvmet_export, nvmet_hide: the port exists as long as it has a subsystem.
nvmet_export() { ln -s "$nvmet/subsystems/siw" "$nvmet/ports/1/subsystems/siw"; }
nvmet_hide() { rm "$nvmet/ports/1/subsystems/siw"; }

# The link goes too, because the core keeps its consumers' completion queues with the device.
nvmet_down() {
	nvmet_hide
	rmdir "$nvmet/subsystems/siw/namespaces/1" "$nvmet/subsystems/siw" "$nvmet/ports/1"
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
	echo 1 >/sys/class/nvme/nvme0/delete_controller
	until_true 20 no_nvme
}
