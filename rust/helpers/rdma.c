// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions, macros and initialisers of the RDMA core that rust/rdma cannot
 * reach by itself.
 */

#include <linux/capability.h>
#include <linux/scatterlist.h>
#include <linux/sysfs.h>
#include <linux/vmalloc.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_cm.h>
#include <rdma/rdma_netlink.h>

#define UVERBS_MODULE_NAME rdma
#include <rdma/uverbs_named_ioctl.h>

#include "rust_helpers.h"

void crate_helper_ib_mark_name_assigned_by_user(struct ib_device *dev)
{
	ib_mark_name_assigned_by_user(dev);
}

/*
 * The inode number of the device's namespace; 0 for the initial one. The core
 * moves devices out of a namespace before that ends.
 */
u32 crate_helper_ib_netns(struct ib_device *dev)
{
	const struct net *net = rdma_dev_net(dev);

	return net_eq(net, &init_net) ? 0 : net->ns.inum;
}

bool crate_helper_ib_port_active(struct net_device *ndev)
{
	return ib_get_curr_port_state(ndev) == IB_PORT_ACTIVE;
}

u32 crate_helper_num_possible_cpus(void)
{
	return num_possible_cpus();
}

/* Its lock class is the one of all these. */
void crate_helper_sysfs_attr_init(struct attribute *attr)
{
	sysfs_attr_init(attr);
}

struct ib_ucontext *crate_helper_udata_ucontext(struct ib_udata *udata)
{
	return container_of(udata, struct uverbs_attr_bundle,
			    driver_udata)->context;
}

struct ib_udata *crate_helper_bundle_udata(struct uverbs_attr_bundle *attrs)
{
	return &attrs->driver_udata;
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(rust_rdma_query_context, UVERBS_OBJECT_DEVICE,
			     UVERBS_METHOD_QUERY_CONTEXT,
			     UVERBS_ATTR_PTR_OUT(RUST_RDMA_ATTR_QUERY_CONTEXT,
						 UVERBS_ATTR_MIN_SIZE(1),
						 UA_MANDATORY));

const struct uapi_definition rust_rdma_driver_def[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &rust_rdma_query_context),
	{}
};

/*
 * Events and references of an iw_cm_id go through pointers into iw_cm, which does
 * not wait for ours: a symbol of it makes it a module that ours holds.
 */
static typeof(iw_create_cm_id) *const rust_rdma_iw_cm __used = iw_create_cm_id;

struct nlattr *crate_helper_nla_nest_driver(struct sk_buff *msg)
{
	return nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
}

void crate_helper_nla_nest_end(struct sk_buff *msg, struct nlattr *table)
{
	nla_nest_end(msg, table);
}

void crate_helper_nla_nest_cancel(struct sk_buff *msg, struct nlattr *table)
{
	nla_nest_cancel(msg, table);
}

/*
 * The only consumer of iw_cm is rdma_cm (cma.c), whose own structure begins with
 * the rdma_cm_id.
 */
bool crate_helper_cm_id_has_qp(const struct iw_cm_id *id, const struct ib_qp *qp)
{
	const struct rdma_cm_id *consumer = id->context;

	return READ_ONCE(consumer->qp) == qp;
}

struct net *crate_helper_cm_id_get_net(const struct iw_cm_id *id)
{
	const struct rdma_cm_id *consumer = id->context;

	return get_net(consumer->route.addr.dev_addr.net);
}

/*
 * For a listener on every device (cma_listen_on_dev): what the listeners of one
 * server have in common, and no others.
 */
uintptr_t crate_helper_cm_id_server(const struct iw_cm_id *id)
{
	const struct rdma_cm_id *consumer = id->context;

	return (uintptr_t)consumer->context;
}

bool crate_helper_ib_net_admin(struct ib_device *dev)
{
	struct net *net;
	bool may;

	rcu_read_lock();
	net = maybe_get_net(read_pnet_rcu(&dev->coredev.rdma_net));
	rcu_read_unlock();
	if (!net)
		return false;
	may = ns_capable(net->user_ns, CAP_NET_ADMIN);
	put_net(net);
	return may;
}

/*
 * As vmalloc_user(), but charged to the program, which says how much it wants, and
 * without a report in the log if there is not as much.
 */
void *crate_helper_ring_alloc(size_t len)
{
	/* Who has no memory left is told so, rather than killed. */
	return __vmalloc(PAGE_ALIGN(len),
			 GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN |
			 __GFP_RETRY_MAYFAIL);
}

/*
 * The address and the length of an element, and the next one. For a device without
 * DMA the addresses are the kernel's.
 */
struct scatterlist *crate_helper_sg_next_dma(struct scatterlist *sg, u64 *addr, u64 *len)
{
	BUILD_BUG_ON(IS_ENABLED(CONFIG_HIGHMEM));
	*addr = sg_dma_address(sg);
	*len = sg_dma_len(sg);
	return sg_next(sg);
}
