// SPDX-License-Identifier: GPL-2.0

//! Tenants: the users that have queue pairs, and the kernel. They share the datamovers alike.
//!
//! While QPs of several tenants wait for a datamover, the QPs of one tenant divide what a single
//! one would get (`iwarp::qp::fairness`). So more QPs do not gain more bandwidth.

use super::by_cpu;
use base::sync::AccessOnce;
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc,
        Mutex, //
    },
    task::Kuid, //
};

/// A user, or the kernel.
pub(super) struct Tenant {
    /// `None`: the kernel.
    uid: Option<Kuid>,
    /// Queue pairs that wait for a turn, by CPU.
    waiting: KVec<Atomic<u32>>,
}

impl Tenant {
    fn new(uid: Option<Kuid>) -> Result<Arc<Self>> {
        let waiting = by_cpu(|| Atomic::new(0), GFP_KERNEL_ACCOUNT)?;
        Ok(Arc::new(Self { uid, waiting }, GFP_KERNEL_ACCOUNT)?)
    }
}

/// All tenants.
#[pin_data]
pub(super) struct Tenants {
    /// Tenants, each with the number of its queue pairs.
    #[pin]
    present: Mutex<KVec<(Arc<Tenant>, usize)>>,
}

impl Tenants {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                present <- ranked_mutex!(Rank::Tenants, KVec::new()),
            }),
            GFP_KERNEL,
        )
    }

    /// Enters a queue pair of `uid`. Sleeps.
    pub(super) fn join(self: &Arc<Self>, uid: Option<Kuid>) -> Result<Membership> {
        let mut present = self.present.lock();
        let known = present.iter_mut().find(|(tenant, _)| tenant.uid == uid);
        let tenant = match known {
            Some((tenant, members)) => {
                *members = members.saturating_add(1);
                tenant.clone()
            }
            None => {
                let tenant = Tenant::new(uid)?;
                present.push((tenant.clone(), 1), GFP_KERNEL_ACCOUNT)?;
                tenant
            }
        };
        Ok(Membership {
            tenants: self.clone(),
            tenant,
        })
    }
}

/// The membership of a queue pair in a tenant. Its drop sleeps.
pub(super) struct Membership {
    tenants: Arc<Tenants>,
    tenant: Arc<Tenant>,
}

impl Membership {
    /// Queue pairs of the tenant that wait for the datamover of `cpu`. Any context.
    pub(super) fn waiting(&self, cpu: u32) -> Option<&Atomic<u32>> {
        self.tenant.waiting.get(cpu as usize)
    }

    /// The number of queue pairs that divide the tenant's share of `cpu` when `waiting` wait there
    /// and one of the tenant's transmits; 1 if no other tenant waits.
    pub(super) fn sharers(&self, cpu: u32, waiting: u32) -> u32 {
        let ours = self.waiting(cpu).map_or(0, |n| n.read_once());
        if ours >= waiting {
            return 1;
        }
        ours.saturating_add(1)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut present = self.tenants.present.lock();
        let mine = |(tenant, _): &(Arc<Tenant>, usize)| Arc::ptr_eq(tenant, &self.tenant);
        let Some(at) = present.iter().position(mine) else {
            return;
        };
        if let Some((_, members)) = present.get_mut(at) {
            *members = members.saturating_sub(1);
            if *members == 0 {
                let _ = present.remove(at);
            }
        }
    }
}
