/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of rust/helpers/rdma.c, for rust/kapi/rdma.
 */
#ifndef SIW_HELPERS_RDMA_H
#define SIW_HELPERS_RDMA_H

#include <linux/netdevice.h>
#include <linux/spinlock.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <rdma/uverbs_ioctl.h>

/* Device and user data */
void siw_helper_ib_name_by_user(struct ib_device *dev);
bool siw_helper_port_active(struct net_device *ndev);
u32 siw_helper_num_possible_cpus(void);
void siw_helper_sysfs_attr_init(struct attribute *attr);
struct ib_ucontext *siw_helper_udata_ucontext(struct ib_udata *udata);
struct ib_udata *siw_helper_bundle_udata(struct uverbs_attr_bundle *attrs);

struct nlattr *siw_helper_driver_nest(struct sk_buff *msg);
void siw_helper_nest_end(struct sk_buff *msg, struct nlattr *table);
void siw_helper_nest_cancel(struct sk_buff *msg, struct nlattr *table);

/* Settings */
bool siw_helper_net_admin(struct ib_device *dev);

/* Connection manager */
bool siw_helper_kthread(void);
bool siw_helper_exiting(void);
bool siw_helper_cm_id_has_qp(const struct iw_cm_id *id, const struct ib_qp *qp);
struct pid *siw_helper_get_process(void);
bool siw_helper_is_process(const struct pid *pid);
void siw_helper_put_process(struct pid *pid);

/* Gate */
struct siw_gate {
	raw_spinlock_t lock;
	bool locked;
	/* Those that have ever been inside. */
	atomic_long_t cpus;
};

void siw_helper_gate_init(struct siw_gate *gate);
bool siw_helper_gate_enter(struct siw_gate *gate);
void siw_helper_gate_exit(bool stayed);
bool siw_helper_gate_lock(struct siw_gate *gate);
void siw_helper_gate_unlock(struct siw_gate *gate, bool stayed);

/* Tables */
struct siw_rcu {
	struct rcu_head head;
};

void siw_helper_kfree_rcu(struct siw_rcu *p);
bool siw_helper_refcount_inc_not_zero(refcount_t *refs);
void siw_helper_xa_init(struct xarray *xa);
int siw_helper_xa_insert(struct xarray *xa, unsigned long index, void *entry);
void *siw_helper_xa_erase(struct xarray *xa, unsigned long index);
void *siw_helper_xa_find(struct xarray *xa, unsigned long *index);
unsigned long siw_helper_xa_lock(struct xarray *xa);
void siw_helper_xa_unlock(struct xarray *xa, unsigned long flags);

/* Memory */
void *siw_helper_ring_alloc(size_t len);
int siw_helper_ring_map(struct vm_area_struct *vma, void *ring, size_t len);
struct ib_umem *siw_helper_umem_get(struct ib_device *dev, unsigned long start,
				    size_t len, int access);
size_t siw_helper_umem_pages(struct ib_umem *umem, unsigned long *addr,
			     size_t room);
size_t siw_helper_direct_map_room(unsigned long addr);
bool siw_helper_may_sleep(void);
struct workqueue_struct *siw_helper_alloc_release_queue(void);
void siw_helper_release_work_init(struct work_struct *work, work_func_t func);
void siw_helper_release_work_queue(struct workqueue_struct *queue,
				   struct work_struct *work);

#endif
