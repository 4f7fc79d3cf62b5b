# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# NFS over RDMA, for the cases that source this: guest a serves a tmpfs to guest b, which mounts it
# at /mnt/nfs.

exported=/srv/nfs

# Reads and writes take at most NFS_LARGEST bytes, if given, and else what suits the guest's memory.
nfs_serve() {
	modprobe -a nfsd rpcrdma
	mkdir -p $exported
	mount -t tmpfs tmpfs $exported
	mkdir -p /run/rpc_pipefs
	mount -t rpc_pipefs sunrpc /run/rpc_pipefs
	mount -t nfsd nfsd /proc/fs/nfsd
	[ -z "${NFS_LARGEST:-}" ] || echo "$NFS_LARGEST" >/proc/fs/nfsd/max_block_size
	rpcbind -w
	nfsdcld
	exportfs -o rw,no_root_squash,insecure,fsid=0 "$B4:$exported"
	rpc.mountd
	rpc.nfsd --rdma=20049 --lease-time 10 --grace-time 10 4
}

nfs_stop() {
	exportfs -ua
	rpc.nfsd 0
	umount $exported /proc/fs/nfsd
	# nfsdcld still uses it.
	umount -l /run/rpc_pipefs
}

# nfs_mount VERSION[,OPTION...]
nfs_mount() {
	modprobe -a nfs nfsv3 nfsv4 rpcrdma
	mkdir -p /mnt/nfs
	mount -t nfs -o "vers=$1,proto=rdma,port=20049" "$A4:$([[ $1 = 4* ]] && echo / || echo $exported)" /mnt/nfs
	grep /mnt/nfs /proc/mounts
	grep -q 'proto=rdma' /proc/mounts
}
