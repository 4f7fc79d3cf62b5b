// SPDX-License-Identifier: GPL-2.0
/*
 * Memory on demand: a part of a program's address space, whose pages are found when
 * they are accessed, and forgotten when the kernel takes them.
 *
 * ib_umem_odp_get() does that for a device with DMA: it maps each page for the bus, and
 * its users take a mutex for each access. This finds pages for the CPU, and its owner
 * keeps them in a table that can be read in any context. hmm_range_fault() and the
 * interval notifiers under both are exported, but their arguments are built by macros
 * and inline functions.
 *
 * It breaks with a change of the protocol between notifier and HMM
 * (Documentation/mm/hmm.rst): between mmu_interval_read_begin() and
 * mmu_interval_read_retry(), with the lock held that the notifier takes.
 */

#include <linux/hmm.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>
#include <linux/uaccess.h>

#include "rust_c.h"

#ifndef CONFIG_INFINIBAND_ON_DEMAND_PAGING
#error "The kernel needs CONFIG_INFINIBAND_ON_DEMAND_PAGING, as Debian's kernels have it"
#endif

/* What the owner knows of the pages changes with the lock held. */
struct soft_odp_range {
	struct mmu_interval_notifier notifier;
	/* Orders what the owner knows with the notifier. */
	struct mutex lock;
	struct soft_odp *owner;
	unsigned long start;
	size_t pages;
};

static bool odp_invalidate(struct mmu_interval_notifier *mni,
			   const struct mmu_notifier_range *range,
				unsigned long seq)
{
	struct soft_odp_range *odp = container_of(mni, struct soft_odp_range, notifier);
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

static const struct mmu_interval_notifier_ops odp_ops = {
	.invalidate = odp_invalidate,
};

/* @pages pages of the current process, from the page-aligned address @start on. */
struct soft_odp_range *soft_odp_get(unsigned long start, size_t pages)
{
	struct soft_odp_range *odp = kzalloc(sizeof(*odp), GFP_KERNEL_ACCOUNT);
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
					   pages << PAGE_SHIFT, &odp_ops);
	if (ret) {
		kfree(odp);
		return ERR_PTR(ret);
	}
	return odp;
}

/* After it, clear() is called, until release() has returned. */
void soft_odp_own(struct soft_odp_range *odp, struct soft_odp *owner)
{
	mutex_lock(&odp->lock);
	odp->owner = owner;
	mutex_unlock(&odp->lock);
}

bool soft_odp_is_of_current(const struct soft_odp_range *odp)
{
	return odp->notifier.mm == current->mm;
}

/* Until soft_odp_charged(), charges allocations to the program's control group. */
struct mem_cgroup *soft_odp_charge(const struct soft_odp_range *odp)
{
	return set_active_memcg(get_mem_cgroup_from_mm(odp->notifier.mm));
}

void soft_odp_charged(struct mem_cgroup *old)
{
	mem_cgroup_put(set_active_memcg(old));
}

static int odp_walk(struct hmm_range *range)
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
int soft_odp_map(struct soft_odp_range *odp, size_t page, size_t count, bool write,
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
		ret = odp_walk(&range);
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
unsigned long soft_odp_page(unsigned long pfn, bool write)
{
	void *addr;
	u8 byte;

	if (!(pfn & HMM_PFN_VALID) || (write && !(pfn & HMM_PFN_WRITE)))
		return 0;
	addr = page_address(hmm_pfn_to_page(pfn));
	/* The kernel does not map secret memory (memfd_secret), nor that of devices. */
	return copy_from_kernel_nofault(&byte, addr, 1) ? 0 : (unsigned long)addr;
}

void soft_odp_unlock(struct soft_odp_range *odp)
{
	mutex_unlock(&odp->lock);
}

/* The program's page tables do not know of what the driver has written. */
void soft_odp_dirty(unsigned long addr)
{
	set_page_dirty(virt_to_head_page((void *)addr));
}

void soft_odp_release(struct soft_odp_range *odp, struct soft_odp *owner)
{
	mutex_lock(&odp->lock);
	owner->clear(owner, 0, odp->pages);
	odp->owner = NULL;
	mutex_unlock(&odp->lock);
	mmu_interval_notifier_remove(&odp->notifier);
	kfree(odp);
}
