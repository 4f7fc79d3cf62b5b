/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions of rust/helpers, and types that they need. Rust sees their names without
 * crate_helper_. The kernel crate's helpers have another prefix, because its inline
 * functions call them from this module, too.
 */
#ifndef RUST_HELPERS_H
#define RUST_HELPERS_H

#include <linux/netdevice.h>
#include <linux/spinlock.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/sock.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <rdma/uverbs_ioctl.h>

/* rust/helpers/base.c */
struct base_rcu {
	struct rcu_head head;
};

unsigned long crate_helper_spin_lock_irqsave(spinlock_t *lock);
void crate_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
bool crate_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);
u32 crate_helper_raw_smp_processor_id(void);
bool crate_helper_in_softirq(void);
bool crate_helper_cpu_online(u32 cpu);
void crate_helper_cond_resched_tasks_rcu_qs(void);
unsigned long crate_helper_jiffies(void);
void crate_helper_synchronize_rcu_tasks(void);
bool crate_helper_may_sleep(void);
bool crate_helper_is_kthread(void);
bool crate_helper_is_exiting(void);
struct pid *crate_helper_get_process(void);
bool crate_helper_is_process(const struct pid *pid);
void crate_helper_put_pid(struct pid *pid);
struct workqueue_struct *crate_helper_alloc_workqueue(const char *name,
						      unsigned int flags,
					      int max_active);
void crate_helper_flush_workqueue(struct workqueue_struct *wq);
void crate_helper_kfree_rcu(struct base_rcu *p);
bool crate_helper_refcount_inc_not_zero(refcount_t *refs);
void crate_helper_table_init(struct xarray *xa);
int crate_helper_table_insert(struct xarray *xa, unsigned long index, void *entry);
void *crate_helper_xa_erase_irq(struct xarray *xa, unsigned long index);
void *crate_helper_xa_next(struct xarray *xa, unsigned long *index);
unsigned long crate_helper_xa_lock_irqsave(struct xarray *xa);
void crate_helper_xa_unlock_irqrestore(struct xarray *xa, unsigned long flags);
struct net *crate_helper_get_net(struct net *net);
void crate_helper_put_net(struct net *net);
void crate_helper_dev_hold(struct net_device *dev);
void crate_helper_dev_put(struct net_device *dev);
void crate_helper_netdev_name(const struct net_device *dev, char name[IFNAMSIZ]);
u32 crate_helper_dev_hw_addr(const struct net_device *dev, u8 addr[MAX_ADDR_LEN]);
u32 crate_helper_dev_ifindex(const struct net_device *dev);
u32 crate_helper_l3mdev_master_ifindex(struct net_device *dev);
u32 crate_helper_dev_mtu(const struct net_device *dev);
u32 crate_helper_dev_max_mtu(const struct net_device *dev);
bool crate_helper_dev_is_up(const struct net_device *dev);
u16 crate_helper_dev_type(const struct net_device *dev);
struct net *crate_helper_dev_get_net(struct net_device *dev);

/* rust/helpers/rdma.c */
/* The attributes that providers add to the core's methods of uverbs. */
enum rust_rdma_attr {
	RUST_RDMA_ATTR_QUERY_CONTEXT = 1U << UVERBS_ID_NS_SHIFT,
};

extern const struct uapi_definition rust_rdma_driver_def[];

void crate_helper_ib_mark_name_assigned_by_user(struct ib_device *dev);
u32 crate_helper_ib_netns(struct ib_device *dev);
bool crate_helper_ib_port_active(struct net_device *ndev);
u32 crate_helper_num_possible_cpus(void);
void crate_helper_sysfs_attr_init(struct attribute *attr);
struct ib_ucontext *crate_helper_udata_ucontext(struct ib_udata *udata);
struct ib_udata *crate_helper_bundle_udata(struct uverbs_attr_bundle *attrs);
struct nlattr *crate_helper_nla_nest_driver(struct sk_buff *msg);
void crate_helper_nla_nest_end(struct sk_buff *msg, struct nlattr *table);
void crate_helper_nla_nest_cancel(struct sk_buff *msg, struct nlattr *table);
bool crate_helper_cm_id_has_qp(const struct iw_cm_id *id, const struct ib_qp *qp);
struct net *crate_helper_cm_id_get_net(const struct iw_cm_id *id);
uintptr_t crate_helper_cm_id_server(const struct iw_cm_id *id);
bool crate_helper_ib_net_admin(struct ib_device *dev);
void *crate_helper_ring_alloc(size_t len);
struct scatterlist *crate_helper_sg_next_dma(struct scatterlist *sg, u64 *addr, u64 *len);

/* rust/helpers/soft.c */
struct page *crate_helper_alloc_tx_pages(unsigned int order);
void *crate_helper_page_address(struct page *page);
void crate_helper_put_page(struct page *page);
phys_addr_t crate_helper_page_to_phys(struct page *page);
struct page *crate_helper_phys_to_page(phys_addr_t addr);
struct page *crate_helper_get_page_of(const void *addr);
int crate_helper_page_refs(const struct page *page);
size_t crate_helper_direct_map_room(unsigned long addr);
struct ib_umem *crate_helper_ib_umem_get_va(struct ib_device *dev, unsigned long start,
					    size_t len, int access);
u32 crate_helper_ubuf_refs(const struct ubuf_info *ubuf);
bool crate_helper_ubuf_put(struct ubuf_info *ubuf);
struct net_device *crate_helper_netdev_notifier_info_to_dev(void *info);
int crate_helper_sock_set_v6only(struct sock *sk);
int crate_helper_sock_error(struct sock *sk);
void crate_helper_sk_callback_lock(struct sock *sk);
void crate_helper_sk_callback_unlock(struct sock *sk);
void crate_helper_trace_sk_data_ready(struct sock *sk);
int crate_helper_sk_state(const struct sock *sk);
int crate_helper_sk_err(const struct sock *sk);
u32 crate_helper_sk_mss(const struct sock *sk);
u32 crate_helper_sk_write_seq(const struct sock *sk);
u32 crate_helper_sk_snd_una(const struct sock *sk);
int crate_helper_sk_space(const struct sock *sk);
int crate_helper_sk_sndbuf(const struct sock *sk);
int crate_helper_sk_wmem_queued(const struct sock *sk);
bool crate_helper_sock_owned_by_user(const struct sock *sk);
void crate_helper_lock_sock(struct sock *sk);
void crate_helper_sk_flush_backlog(struct sock *sk);
u32 crate_helper_skb_len(const struct sk_buff *skb);

#endif
