// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions, macros and fields of bitfield-ridden types that rust/base cannot
 * reach by itself.
 */

#include <linux/netdevice.h>
#include <linux/pid.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/l3mdev.h>
#include <net/net_namespace.h>

#include "rust_helpers.h"

unsigned long crate_helper_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

void crate_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

bool crate_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	unsigned long saved;

	if (!spin_trylock_irqsave(lock, saved))
		return false;
	*flags = saved;
	return true;
}

u32 crate_helper_raw_smp_processor_id(void)
{
	return raw_smp_processor_id();
}

bool crate_helper_in_softirq(void)
{
	return softirq_count();
}

bool crate_helper_cpu_online(u32 cpu)
{
	return cpu < nr_cpu_ids && cpu_online(cpu);
}

void crate_helper_cond_resched_tasks_rcu_qs(void)
{
	cond_resched_tasks_rcu_qs();
}

unsigned long crate_helper_jiffies(void)
{
	return jiffies;
}

/* Waits until every task has given up the CPU by itself. */
void crate_helper_synchronize_rcu_tasks(void)
{
	synchronize_rcu_tasks();
}

bool crate_helper_may_sleep(void)
{
	return IS_ENABLED(CONFIG_PREEMPT_COUNT) && preemptible() &&
	       !rcu_preempt_depth();
}

bool crate_helper_is_kthread(void)
{
	return current->flags & PF_KTHREAD;
}

bool crate_helper_is_exiting(void)
{
	return current->flags & PF_EXITING;
}

struct pid *crate_helper_get_process(void)
{
	return get_pid(task_tgid(current));
}

bool crate_helper_is_process(const struct pid *pid)
{
	return task_tgid(current) == pid;
}

void crate_helper_put_pid(struct pid *pid)
{
	put_pid(pid);
}

/* @max_active: how many items run at a time; 0: as many as is usual. */
struct workqueue_struct *crate_helper_alloc_workqueue(const char *name,
						      unsigned int flags,
					      int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}

void crate_helper_flush_workqueue(struct workqueue_struct *wq)
{
	flush_workqueue(wq);
}

void crate_helper_kfree_rcu(struct base_rcu *p)
{
	kfree_rcu(p, head);
}

bool crate_helper_refcount_inc_not_zero(refcount_t *refs)
{
	return refcount_inc_not_zero(refs);
}

void crate_helper_table_init(struct xarray *xa)
{
	/* The indexes of STags are far apart, so an object may take several nodes. */
	xa_init_flags(xa, XA_FLAGS_LOCK_IRQ | XA_FLAGS_ACCOUNT);
}

int crate_helper_table_insert(struct xarray *xa, unsigned long index, void *entry)
{
	return xa_insert_irq(xa, index, entry, GFP_KERNEL);
}

void *crate_helper_xa_erase_irq(struct xarray *xa, unsigned long index)
{
	return xa_erase_irq(xa, index);
}

void *crate_helper_xa_next(struct xarray *xa, unsigned long *index)
{
	return xa_find(xa, index, ULONG_MAX, XA_PRESENT);
}

unsigned long crate_helper_xa_lock_irqsave(struct xarray *xa)
{
	unsigned long flags;

	xa_lock_irqsave(xa, flags);
	return flags;
}

void crate_helper_xa_unlock_irqrestore(struct xarray *xa, unsigned long flags)
{
	xa_unlock_irqrestore(xa, flags);
}

struct net *crate_helper_get_net(struct net *net)
{
	return get_net(net);
}

void crate_helper_put_net(struct net *net)
{
	put_net(net);
}

void crate_helper_dev_hold(struct net_device *dev)
{
	dev_hold(dev);
}

void crate_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

void crate_helper_netdev_name(const struct net_device *dev, char name[IFNAMSIZ])
{
	strscpy_pad(name, dev->name, IFNAMSIZ);
}

u32 crate_helper_dev_hw_addr(const struct net_device *dev, u8 addr[MAX_ADDR_LEN])
{
	u32 len = min_t(u32, dev->addr_len, MAX_ADDR_LEN);

	memcpy(addr, dev->dev_addr, len);
	return len;
}

u32 crate_helper_dev_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

/* Index of the VRF of @dev, or of @dev itself if it is a VRF; 0 if none. */
u32 crate_helper_l3mdev_master_ifindex(struct net_device *dev)
{
	return l3mdev_master_ifindex(dev);
}

u32 crate_helper_dev_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

u32 crate_helper_dev_max_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->max_mtu);
}

bool crate_helper_dev_is_up(const struct net_device *dev)
{
	return READ_ONCE(dev->flags) & IFF_UP;
}

u16 crate_helper_dev_type(const struct net_device *dev)
{
	return dev->type;
}

struct net *crate_helper_dev_get_net(struct net_device *dev)
{
	struct net *net;

	rcu_read_lock();
	net = maybe_get_net(dev_net_rcu(dev));
	rcu_read_unlock();
	return net;
}
