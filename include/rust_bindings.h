/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads for rust/base/bindings.rs. Types that are complete in the
 * kernel crate's own bindings are taken from there, see scripts/filter-bindings.
 */

/* <net/tcp.h> declares tracepoints through this. */
#include <linux/tracepoint.h>

#include <linux/bvec.h>
#include <linux/cpuhotplug.h>
#include <linux/crc32c.h>
#include <linux/debugfs.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/kthread.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>
#include <linux/seq_file.h>
#include <linux/siphash.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include <net/addrconf.h>
#include <net/inet_connection_sock.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/sock.h>
#include <net/tcp.h>

#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_sysfs.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_netlink.h>
#include <rdma/uverbs_ioctl.h>

#include "rust_c.h"
#include "rust_helpers.h"
