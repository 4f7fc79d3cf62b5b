/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of rust/helpers/rdma.c.
 */
#ifndef KAPI_HELPERS_RDMA_H
#define KAPI_HELPERS_RDMA_H

#include <linux/netdevice.h>
#include <linux/spinlock.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <rdma/uverbs_ioctl.h>

struct dma_buf_attachment;

/* Device and user data */
void kapi_ib_name_by_user(struct ib_device *dev);
u32 kapi_ib_netns(struct ib_device *dev);
bool kapi_port_active(struct net_device *ndev);
u32 kapi_num_possible_cpus(void);
void kapi_sysfs_attr_init(struct attribute *attr);
struct ib_ucontext *kapi_udata_ucontext(struct ib_udata *udata);
struct ib_udata *kapi_bundle_udata(struct uverbs_attr_bundle *attrs);

/* The attributes that providers add to the core's methods of uverbs. */
enum kapi_attr {
	KAPI_ATTR_QUERY_CONTEXT = 1U << UVERBS_ID_NS_SHIFT,
};

extern const struct uapi_definition kapi_driver_def[];

struct nlattr *kapi_driver_nest(struct sk_buff *msg);
void kapi_nest_end(struct sk_buff *msg, struct nlattr *table);
void kapi_nest_cancel(struct sk_buff *msg, struct nlattr *table);

/* Settings */
bool kapi_net_admin(struct ib_device *dev);

/* Connection manager */
bool kapi_kthread(void);
bool kapi_exiting(void);
bool kapi_cm_id_has_qp(const struct iw_cm_id *id, const struct ib_qp *qp);
struct net *kapi_cm_id_get_net(const struct iw_cm_id *id);
uintptr_t kapi_cm_id_server(const struct iw_cm_id *id);
struct pid *kapi_get_process(void);
bool kapi_is_process(const struct pid *pid);
void kapi_put_process(struct pid *pid);

/* Gate */
struct kapi_gate {
	raw_spinlock_t lock;
	bool locked;
	/* Those that have ever been inside. */
	atomic_long_t cpus;
};

void kapi_gate_init(struct kapi_gate *gate);
bool kapi_gate_enter(struct kapi_gate *gate);
void kapi_gate_exit(bool stayed);
bool kapi_gate_lock(struct kapi_gate *gate);
void kapi_gate_unlock(struct kapi_gate *gate, bool stayed);
bool kapi_gate_enter_deeper(struct kapi_gate *gate);
void kapi_gate_exit_deeper(bool stayed);
void kapi_gate_wait_deeper(struct kapi_gate *gate);

/* Tables */
struct kapi_rcu {
	struct rcu_head head;
};

void kapi_kfree_rcu(struct kapi_rcu *p);
bool kapi_refcount_inc_not_zero(refcount_t *refs);
void kapi_xa_init(struct xarray *xa);
int kapi_xa_insert(struct xarray *xa, unsigned long index, void *entry);
void *kapi_xa_erase(struct xarray *xa, unsigned long index);
void *kapi_xa_find(struct xarray *xa, unsigned long *index);
unsigned long kapi_xa_lock(struct xarray *xa);
void kapi_xa_unlock(struct xarray *xa, unsigned long flags);

/* Memory */
void *kapi_ring_alloc(size_t len);
int kapi_ring_map(struct vm_area_struct *vma, void *ring, size_t len);
struct ib_umem *kapi_umem_get(struct ib_device *dev, unsigned long start,
			      size_t len, int access);
struct scatterlist *kapi_sg_next(struct scatterlist *sg, u64 *addr, u64 *len);
struct dma_buf_attachment *kapi_dmabuf_get(struct ib_device *dev, int fd, bool write,
					   void **addr, size_t *len);
void kapi_dmabuf_put(struct dma_buf_attachment *attach, void *addr);
size_t kapi_direct_map_room(unsigned long addr);

struct kapi_odp_range;
struct mem_cgroup;

/* The owner of memory on demand. */
struct kapi_odp {
	/* Forgets pages, by their number. May run until release() returns. */
	void (*clear)(struct kapi_odp *owner, size_t first, size_t end);
};

bool kapi_odp_possible(void);
struct kapi_odp_range *kapi_odp_get(unsigned long start, size_t pages);
void kapi_odp_own(struct kapi_odp_range *odp, struct kapi_odp *owner);
bool kapi_odp_is_of_current(const struct kapi_odp_range *odp);
struct mem_cgroup *kapi_odp_charge(const struct kapi_odp_range *odp);
void kapi_odp_charged(struct mem_cgroup *old);
int kapi_odp_map(struct kapi_odp_range *odp, size_t page, size_t count, bool write,
		 bool fault, unsigned long *pfns);
unsigned long kapi_odp_page(unsigned long pfn, bool write);
void kapi_odp_unlock(struct kapi_odp_range *odp);
void kapi_odp_dirty(unsigned long addr);
void kapi_odp_release(struct kapi_odp_range *odp, struct kapi_odp *owner);

bool kapi_may_sleep(void);

#endif
