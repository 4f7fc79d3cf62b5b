// SPDX-License-Identifier: GPL-2.0
/*
 * C of the RDMA core and of memory that Rust cannot call by itself: inline
 * functions and macros. Part of rust/helpers.c.
 */

#include <linux/capability.h>
#include <linux/dma-buf.h>
#include <linux/hmm.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/pid.h>
#include <linux/preempt.h>
#include <linux/scatterlist.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_cm.h>
#include <rdma/rdma_netlink.h>

#define UVERBS_MODULE_NAME rdma
#include <rdma/uverbs_named_ioctl.h>

#include "kapi_helpers_rdma.h"

/* Device and user data */

void kapi_ib_name_by_user(struct ib_device *dev)
{
	ib_mark_name_assigned_by_user(dev);
}

/*
 * The inode number of the device's namespace; 0 for the initial one. The core
 * moves devices out of a namespace before that ends.
 */
u32 kapi_ib_netns(struct ib_device *dev)
{
	const struct net *net = rdma_dev_net(dev);

	return net_eq(net, &init_net) ? 0 : net->ns.inum;
}

bool kapi_port_active(struct net_device *ndev)
{
	return ib_get_curr_port_state(ndev) == IB_PORT_ACTIVE;
}

u32 kapi_num_possible_cpus(void)
{
	return num_possible_cpus();
}

/* Its lock class is the one of all these. */
void kapi_sysfs_attr_init(struct attribute *attr)
{
	sysfs_attr_init(attr);
}

struct ib_ucontext *kapi_udata_ucontext(struct ib_udata *udata)
{
	return container_of(udata, struct uverbs_attr_bundle,
			    driver_udata)->context;
}

struct ib_udata *kapi_bundle_udata(struct uverbs_attr_bundle *attrs)
{
	return &attrs->driver_udata;
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(kapi_query_context, UVERBS_OBJECT_DEVICE,
			     UVERBS_METHOD_QUERY_CONTEXT,
			     UVERBS_ATTR_PTR_OUT(KAPI_ATTR_QUERY_CONTEXT,
						 UVERBS_ATTR_MIN_SIZE(1),
						 UA_MANDATORY));

const struct uapi_definition kapi_driver_def[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &kapi_query_context),
	{}
};

struct nlattr *kapi_driver_nest(struct sk_buff *msg)
{
	return nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
}

void kapi_nest_end(struct sk_buff *msg, struct nlattr *table)
{
	nla_nest_end(msg, table);
}

void kapi_nest_cancel(struct sk_buff *msg, struct nlattr *table)
{
	nla_nest_cancel(msg, table);
}

/* Connection manager */

/*
 * Events and references of an iw_cm_id go through pointers into iw_cm, which does
 * not wait for ours: a symbol of it makes it a module that ours holds.
 */
static typeof(iw_create_cm_id) *const kapi_iw_cm __used = iw_create_cm_id;

bool kapi_kthread(void)
{
	return current->flags & PF_KTHREAD;
}

bool kapi_exiting(void)
{
	return current->flags & PF_EXITING;
}

/*
 * The only consumer of iw_cm is rdma_cm (cma.c), whose own structure begins with
 * the rdma_cm_id.
 */
bool kapi_cm_id_has_qp(const struct iw_cm_id *id, const struct ib_qp *qp)
{
	const struct rdma_cm_id *consumer = id->context;

	return READ_ONCE(consumer->qp) == qp;
}

struct net *kapi_cm_id_get_net(const struct iw_cm_id *id)
{
	const struct rdma_cm_id *consumer = id->context;

	return get_net(consumer->route.addr.dev_addr.net);
}

/*
 * For a listener on every device (cma_listen_on_dev): what the listeners of one
 * server have in common, and no others.
 */
uintptr_t kapi_cm_id_server(const struct iw_cm_id *id)
{
	const struct rdma_cm_id *consumer = id->context;

	return (uintptr_t)consumer->context;
}

struct pid *kapi_get_process(void)
{
	return get_pid(task_tgid(current));
}

bool kapi_is_process(const struct pid *pid)
{
	return task_tgid(current) == pid;
}

void kapi_put_process(struct pid *pid)
{
	put_pid(pid);
}

/* Settings */

bool kapi_net_admin(struct ib_device *dev)
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
 * The gate. Who goes inside says so in a place of its CPU, and writes to the gate
 * only when the CPU is there for the first time. Who wants to lock the gate says so
 * in it, and waits for the CPUs that were faster; those that come later queue up
 * behind. Each CPU is inside of one gate at a time, because nothing that enters one
 * can come in between. Only the memory behind a gate may have another one inside.
 */
static DEFINE_PER_CPU(struct kapi_gate *, kapi_gate_inside);

/* The same for gates that are entered inside of another one. */
static DEFINE_PER_CPU(struct kapi_gate *, kapi_gate_deeper);

void kapi_gate_init(struct kapi_gate *gate)
{
	raw_spin_lock_init(&gate->lock);
	gate->locked = false;
	atomic_long_set(&gate->cpus, 0);
}

/*
 * In a softirq, and with interrupts off, as kernel consumers may post, no softirq can
 * come in between; in the latter case local_bh_enable() may not be called. Where
 * softirqs are threads they may be preempted inside.
 */
static __always_inline bool kapi_gate_stay(void)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT)) {
		preempt_disable();
		return true;
	}
	if (softirq_count() || irqs_disabled())
		return false;
	local_bh_disable();
	return true;
}

static __always_inline void kapi_gate_go(bool stayed)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
	else if (stayed)
		local_bh_enable();
}

/* Several CPUs share a bit, where there are so many. */
static __always_inline long kapi_gate_bit(int cpu)
{
	return BIT(cpu % BITS_PER_LONG);
}

static __always_inline bool kapi_gate_go_in(struct kapi_gate *gate,
					    struct kapi_gate * __percpu *inside)
{
	bool stayed = kapi_gate_stay();
	long bit = kapi_gate_bit(smp_processor_id());

	WARN_ON_ONCE(IS_ENABLED(CONFIG_PROVE_LOCKING) &&
		     this_cpu_read(*inside));
	if (unlikely(!(atomic_long_read(&gate->cpus) & bit)))
		atomic_long_or(bit, &gate->cpus);
	__this_cpu_write(*inside, gate);
	/* As in kapi_gate_shut(): one of both sees the other. */
	smp_mb();
	/* Pairs with the release of kapi_gate_unlock(). */
	if (unlikely(smp_load_acquire(&gate->locked))) {
		__this_cpu_write(*inside, NULL);
		raw_spin_lock(&gate->lock);
		__this_cpu_write(*inside, gate);
		raw_spin_unlock(&gate->lock);
	}
	return stayed;
}

static __always_inline void kapi_gate_go_out(bool stayed,
					     struct kapi_gate * __percpu *inside)
{
	/* Pairs with the acquire of kapi_gate_shut(). */
	smp_store_release(this_cpu_ptr(inside), NULL);
	kapi_gate_go(stayed);
}

static bool kapi_gate_shut(struct kapi_gate *gate,
			   struct kapi_gate * __percpu *inside)
{
	bool stayed = kapi_gate_stay();
	long cpus;
	int cpu;

	WARN_ON_ONCE(IS_ENABLED(CONFIG_PROVE_LOCKING) &&
		     this_cpu_read(*inside));
	raw_spin_lock(&gate->lock);
	WRITE_ONCE(gate->locked, true);
	/* As in kapi_gate_go_in(). */
	smp_mb();
	cpus = atomic_long_read(&gate->cpus);
	for_each_possible_cpu(cpu) {
		if (cpus & kapi_gate_bit(cpu))
			smp_cond_load_acquire(per_cpu_ptr(inside, cpu),
					      gate != VAL);
	}
	return stayed;
}

void kapi_gate_unlock(struct kapi_gate *gate, bool stayed)
{
	/* Pairs with the acquire of kapi_gate_go_in(). */
	smp_store_release(&gate->locked, false);
	raw_spin_unlock(&gate->lock);
	kapi_gate_go(stayed);
}

bool kapi_gate_enter(struct kapi_gate *gate)
{
	return kapi_gate_go_in(gate, &kapi_gate_inside);
}

void kapi_gate_exit(bool stayed)
{
	kapi_gate_go_out(stayed, &kapi_gate_inside);
}

bool kapi_gate_lock(struct kapi_gate *gate)
{
	return kapi_gate_shut(gate, &kapi_gate_inside);
}

bool kapi_gate_enter_deeper(struct kapi_gate *gate)
{
	return kapi_gate_go_in(gate, &kapi_gate_deeper);
}

void kapi_gate_exit_deeper(bool stayed)
{
	kapi_gate_go_out(stayed, &kapi_gate_deeper);
}

/* Who enters later sees what the caller has written before. */
void kapi_gate_wait_deeper(struct kapi_gate *gate)
{
	kapi_gate_unlock(gate, kapi_gate_shut(gate, &kapi_gate_deeper));
}

/* Tables: looked up with interrupts off, changed in process context. */

void kapi_kfree_rcu(struct kapi_rcu *p)
{
	kfree_rcu(p, head);
}

bool kapi_refcount_inc_not_zero(refcount_t *refs)
{
	return refcount_inc_not_zero(refs);
}

void kapi_xa_init(struct xarray *xa)
{
	/* The indexes of STags are far apart, so an object may take several nodes. */
	xa_init_flags(xa, XA_FLAGS_LOCK_IRQ | XA_FLAGS_ACCOUNT);
}

int kapi_xa_insert(struct xarray *xa, unsigned long index, void *entry)
{
	return xa_insert_irq(xa, index, entry, GFP_KERNEL);
}

void *kapi_xa_erase(struct xarray *xa, unsigned long index)
{
	return xa_erase_irq(xa, index);
}

void *kapi_xa_find(struct xarray *xa, unsigned long *index)
{
	return xa_find(xa, index, ULONG_MAX, XA_PRESENT);
}

unsigned long kapi_xa_lock(struct xarray *xa)
{
	unsigned long flags;

	xa_lock_irqsave(xa, flags);
	return flags;
}

void kapi_xa_unlock(struct xarray *xa, unsigned long flags)
{
	xa_unlock_irqrestore(xa, flags);
}

/* Memory */

/*
 * As vmalloc_user(), but charged to the program, which says how much it wants, and
 * without a report in the log if there is not as much.
 */
void *kapi_ring_alloc(size_t len)
{
	/* Who has no memory left is told so, rather than killed. */
	return __vmalloc(PAGE_ALIGN(len),
			 GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN |
			 __GFP_RETRY_MAYFAIL);
}

/* As remap_vmalloc_range(), which takes only memory of vmalloc_user(). */
int kapi_ring_map(struct vm_area_struct *vma, void *ring, size_t len)
{
	size_t at;
	int rv;

	if (vma->vm_end - vma->vm_start != PAGE_ALIGN(len))
		return -EINVAL;
	for (at = 0; at < len; at += PAGE_SIZE) {
		rv = vm_insert_page(vma, vma->vm_start + at,
				    vmalloc_to_page(ring + at));
		if (rv)
			return rv;
	}
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	return 0;
}

struct ib_umem *kapi_umem_get(struct ib_device *dev, unsigned long start,
			      size_t len, int access)
{
	return ib_umem_get_va(dev, start, len, access);
}

/*
 * The address and the length of an element, and the next one. For a device without
 * DMA the addresses are the kernel's.
 */
struct scatterlist *kapi_sg_next(struct scatterlist *sg, u64 *addr, u64 *len)
{
	BUILD_BUG_ON(IS_ENABLED(CONFIG_HIGHMEM));
	*addr = sg_dma_address(sg);
	*len = sg_dma_len(sg);
	return sg_next(sg);
}

MODULE_IMPORT_NS("DMA_BUF");

/*
 * Maps a dmabuf, to be accessed by the CPU until kapi_dmabuf_put(). The attachment
 * keeps it where it is. An exporter that pins only on demand may move it.
 */
struct dma_buf_attachment *kapi_dmabuf_get(struct ib_device *dev, int fd, bool write,
					   void **addr, size_t *len)
{
	struct dma_buf *buf = dma_buf_get(fd);
	struct dma_buf_attachment *attach;
	struct iosys_map map;
	int ret;

	if (IS_ERR(buf))
		return ERR_CAST(buf);
	ret = -EACCES;
	if (write && !(buf->file->f_mode & FMODE_WRITE))
		goto put;
	ret = -EOPNOTSUPP;
	if (!buf->ops->vmap || buf->ops->pin)
		goto put;
	attach = dma_buf_attach(buf, &dev->dev);
	ret = PTR_ERR_OR_ZERO(attach);
	if (ret)
		goto put;
	ret = dma_buf_vmap_unlocked(buf, &map);
	if (ret)
		goto detach;
	ret = -EOPNOTSUPP;
	if (map.is_iomem)
		goto unmap;
	ret = dma_buf_begin_cpu_access(buf, DMA_BIDIRECTIONAL);
	if (ret)
		goto unmap;
	*addr = map.vaddr;
	*len = buf->size;
	return attach;

unmap:
	dma_buf_vunmap_unlocked(buf, &map);
detach:
	dma_buf_detach(buf, attach);
put:
	dma_buf_put(buf);
	return ERR_PTR(ret);
}

void kapi_dmabuf_put(struct dma_buf_attachment *attach, void *addr)
{
	struct iosys_map map = IOSYS_MAP_INIT_VADDR(addr);
	struct dma_buf *buf = attach->dmabuf;

	dma_buf_end_cpu_access(buf, DMA_BIDIRECTIONAL);
	dma_buf_vunmap_unlocked(buf, &map);
	dma_buf_detach(buf, attach);
	dma_buf_put(buf);
}

/* How many bytes from @addr on are in its page of the direct map. */
size_t kapi_direct_map_room(unsigned long addr)
{
	return virt_addr_valid(addr) ? PAGE_SIZE - offset_in_page(addr) : 0;
}

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
/*
 * Memory on demand: a part of a program's address space. What the owner knows of
 * its pages changes with the lock held.
 */
struct kapi_odp_range {
	struct mmu_interval_notifier notifier;
	/* Orders what the owner knows with the notifier. */
	struct mutex lock;
	struct kapi_odp *owner;
	unsigned long start;
	size_t pages;
};

static bool kapi_odp_invalidate(struct mmu_interval_notifier *mni,
				const struct mmu_notifier_range *range,
				unsigned long seq)
{
	struct kapi_odp_range *odp = container_of(mni, struct kapi_odp_range, notifier);
	unsigned long first, last;

	if (mmu_notifier_range_blockable(range))
		mutex_lock(&odp->lock);
	else if (!mutex_trylock(&odp->lock))
		return false;
	mmu_interval_set_seq(mni, seq);
	first = max(range->start, odp->start);
	last = min(range->end - 1, odp->start + (odp->pages << PAGE_SHIFT) - 1);
	if (odp->owner && first <= last)
		odp->owner->clear(odp->owner, (first - odp->start) >> PAGE_SHIFT,
				  ((last - odp->start) >> PAGE_SHIFT) + 1);
	mutex_unlock(&odp->lock);
	return true;
}

static const struct mmu_interval_notifier_ops kapi_odp_ops = {
	.invalidate = kapi_odp_invalidate,
};

bool kapi_odp_possible(void)
{
	return true;
}

/* @pages pages of the current process, from the page-aligned address @start on. */
struct kapi_odp_range *kapi_odp_get(unsigned long start, size_t pages)
{
	struct kapi_odp_range *odp = kzalloc(sizeof(*odp), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!odp)
		return ERR_PTR(-ENOMEM);
	mutex_init(&odp->lock);
	/* Tells lockdep that the kernel takes the lock to free memory. */
	fs_reclaim_acquire(GFP_KERNEL);
	mutex_lock(&odp->lock);
	mutex_unlock(&odp->lock);
	fs_reclaim_release(GFP_KERNEL);
	odp->start = start;
	odp->pages = pages;
	ret = mmu_interval_notifier_insert(&odp->notifier, current->mm, start,
					   pages << PAGE_SHIFT, &kapi_odp_ops);
	if (ret) {
		kfree(odp);
		return ERR_PTR(ret);
	}
	return odp;
}

/* After it, clear() is called, until release() has returned. */
void kapi_odp_own(struct kapi_odp_range *odp, struct kapi_odp *owner)
{
	mutex_lock(&odp->lock);
	odp->owner = owner;
	mutex_unlock(&odp->lock);
}

bool kapi_odp_is_of_current(const struct kapi_odp_range *odp)
{
	return odp->notifier.mm == current->mm;
}

/* Until kapi_odp_charged(), charges allocations to the program's control group. */
struct mem_cgroup *kapi_odp_charge(const struct kapi_odp_range *odp)
{
	return set_active_memcg(get_mem_cgroup_from_mm(odp->notifier.mm));
}

void kapi_odp_charged(struct mem_cgroup *old)
{
	mem_cgroup_put(set_active_memcg(old));
}

static int kapi_odp_walk(struct hmm_range *range)
{
#ifdef linux_since_7_3
	return hmm_range_fault_unlocked_timeout(range,
						msecs_to_jiffies(HMM_RANGE_DEFAULT_TIMEOUT));
#else
	unsigned long end = jiffies + msecs_to_jiffies(HMM_RANGE_DEFAULT_TIMEOUT);
	struct mm_struct *mm = range->notifier->mm;
	int ret;

	do {
		range->notifier_seq = mmu_interval_read_begin(range->notifier);
		mmap_read_lock(mm);
		ret = hmm_range_fault(range);
		mmap_read_unlock(mm);
	} while (ret == -EBUSY && time_before(jiffies, end));
	return ret;
#endif
}

/*
 * Finds pages, and with @fault brings them. @pfns has room for them, and is zero.
 * If this is successful, the lock is held, and what is found stays until it is not.
 */
int kapi_odp_map(struct kapi_odp_range *odp, size_t page, size_t count, bool write,
		 bool fault, unsigned long *pfns)
{
	struct mm_struct *mm = odp->notifier.mm;
	unsigned long start = odp->start + (page << PAGE_SHIFT);
	struct hmm_range range = {
		.notifier = &odp->notifier,
		.start = start,
		.end = start + (count << PAGE_SHIFT),
		.hmm_pfns = pfns,
	};
	int ret;

	if (fault)
		range.default_flags = HMM_PFN_REQ_FAULT | (write ? HMM_PFN_REQ_WRITE : 0);
	if (!mmget_not_zero(mm))
		return -EINVAL;
	for (;;) {
		ret = kapi_odp_walk(&range);
		if (ret)
			break;
		mutex_lock(&odp->lock);
		if (!mmu_interval_read_retry(&odp->notifier, range.notifier_seq))
			break;
		mutex_unlock(&odp->lock);
	}
	/* Not here, where the lock is held: the end of the MM takes it. */
	mmput_async(mm);
	return ret;
}

/* The kernel's address of a page that was found; 0 if it cannot be used. */
unsigned long kapi_odp_page(unsigned long pfn, bool write)
{
	void *addr;
	u8 byte;

	if (!(pfn & HMM_PFN_VALID) || (write && !(pfn & HMM_PFN_WRITE)))
		return 0;
	addr = page_address(hmm_pfn_to_page(pfn));
	/* The kernel does not map secret memory (memfd_secret), nor that of devices. */
	return copy_from_kernel_nofault(&byte, addr, 1) ? 0 : (unsigned long)addr;
}

void kapi_odp_unlock(struct kapi_odp_range *odp)
{
	mutex_unlock(&odp->lock);
}

/* The program's page tables do not know of what the driver has written. */
void kapi_odp_dirty(unsigned long addr)
{
	set_page_dirty(virt_to_head_page((void *)addr));
}

void kapi_odp_release(struct kapi_odp_range *odp, struct kapi_odp *owner)
{
	mutex_lock(&odp->lock);
	owner->clear(owner, 0, odp->pages);
	odp->owner = NULL;
	mutex_unlock(&odp->lock);
	mmu_interval_notifier_remove(&odp->notifier);
	kfree(odp);
}
#else
bool kapi_odp_possible(void)
{
	return false;
}

struct kapi_odp_range *kapi_odp_get(unsigned long start, size_t pages)
{
	return ERR_PTR(-EOPNOTSUPP);
}

void kapi_odp_own(struct kapi_odp_range *odp, struct kapi_odp *owner)
{
}

bool kapi_odp_is_of_current(const struct kapi_odp_range *odp)
{
	return false;
}

struct mem_cgroup *kapi_odp_charge(const struct kapi_odp_range *odp)
{
	return NULL;
}

void kapi_odp_charged(struct mem_cgroup *old)
{
}

int kapi_odp_map(struct kapi_odp_range *odp, size_t page, size_t count, bool write,
		 bool fault, unsigned long *pfns)
{
	return -EOPNOTSUPP;
}

unsigned long kapi_odp_page(unsigned long pfn, bool write)
{
	return 0;
}

void kapi_odp_unlock(struct kapi_odp_range *odp)
{
}

void kapi_odp_dirty(unsigned long addr)
{
}

void kapi_odp_release(struct kapi_odp_range *odp, struct kapi_odp *owner)
{
}
#endif

bool kapi_may_sleep(void)
{
	return IS_ENABLED(CONFIG_PREEMPT_COUNT) && preemptible() &&
	       !rcu_preempt_depth();
}
