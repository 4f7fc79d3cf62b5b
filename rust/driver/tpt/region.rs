// SPDX-License-Identifier: GPL-2.0

//! Registration of memory: user memory, the kernel's own, and regions to be filled later.

use super::{
    entry::{
        Entry,
        State, //
    },
    lent::Lent,
    mem_ref::LastEntry,
    Slot, //
};
use crate::{
    limits::{
        self,
        Count, //
    },
    stats::Counter,
    uapi::abi,
    Siw, //
};
use base::{
    errno,
    table::RcuArc, //
};
use iwarp::{
    error::AccessError,
    mem::{
        access::{
            Access,
            Accessor,
            Consumer,
            Kind,
            Need,
            PdId,
            Region,
            Rights, //
        },
        stag::Stag, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use rdma::{
    self,
    mr::{
        self,
        access as flags, //
    },
    DmaGrant,
    Udata, //
};
use soft::mem::{
    backing::Backing,
    odp::OdpUmem,
    page_list::PageList,
    umem::Umem, //
};

/// The rights for which the memory must be writable.
const MAY_WRITE: Rights = Rights::LOCAL_WRITE.union(Rights::MW_BIND);

/// The driver's part of a memory region.
pub(crate) struct Mr(Slot);

impl Mr {
    /// The entry in the table.
    pub(super) fn entry(&self) -> &RcuArc<Entry> {
        &self.0.entry
    }
}

/// The rights that a consumer asks for and can have.
///
/// Optional flags may be ignored (`IB_ACCESS_OPTIONAL`), all but our own; other unknown flags are
/// refused.
pub(super) fn rights(access: u32) -> Result<Rights> {
    /// `IB_ACCESS_HUGETLB`: a hint.
    const HUGETLB: u32 = 1 << 7;
    const KNOWN: u32 = flags::LOCAL_WRITE
        | flags::REMOTE_WRITE
        | flags::REMOTE_READ
        | flags::REMOTE_ATOMIC
        | flags::MW_BIND
        | flags::ZERO_BASED
        | HUGETLB
        | flags::OPTIONAL_RANGE;
    if access & !KNOWN != 0 {
        return Err(errno::eopnotsupp());
    }
    let rights = Rights(
        access
            & (flags::LOCAL_WRITE
                | flags::REMOTE_WRITE
                | flags::REMOTE_READ
                | flags::REMOTE_ATOMIC
                | flags::MW_BIND
                | flags::ZERO_BASED
                | Rights::ONE_TOUCH.0),
    );
    if !rights.is_consistent() {
        return Err(EINVAL);
    }
    Ok(rights)
}

impl Mr {
    /// The answer to a request for this region, which has `len` bytes from `iova` on. Local and
    /// remote accesses use the same STag.
    fn made(self, iova: u64, len: u64) -> mr::Made<Self> {
        mr::Made {
            lkey: self.0.stag.0,
            rkey: self.0.stag.0,
            data: self,
            iova,
            len,
        }
    }
}

/// Counts a region and enters it in the table.
fn add(
    pd: &rdma::Pd<Siw>,
    key: Option<u8>,
    make: impl FnOnce(Stag, PdId) -> Result<RcuArc<Entry>>,
) -> Result<Mr> {
    let counted = Count::take(pd.dev(), |dev| &dev.counts.mr, limits::MR)?;
    Ok(Mr(Slot::new(counted, key, |stag| make(stag, pd.id))?))
}

/// The address of the first byte in work requests, for a region with these rights that has `len`
/// bytes from `iova` on.
fn base(rights: Rights, iova: u64, len: u64) -> Result<u64> {
    let base = match rights.contains(Rights::ZERO_BASED) {
        true => 0,
        false => iova,
    };
    if len == 0 || base.checked_add(len).is_none() {
        return Err(EINVAL);
    }
    Ok(base)
}

/// Memory of the current process, pinned or on demand as `access` says. Process context.
fn memory(pd: &rdma::Pd<Siw>, start: u64, len: u64, access: u32) -> Result<Backing> {
    let user = pd.dev().shared.memory.clone();
    Ok(if access & flags::ON_DEMAND != 0 {
        let taken = pd.dev().pages_taken.clone();
        let umem = OdpUmem::get(start, len, &pd.dev().shared.programs, taken, user)?;
        Backing::Odp(Arc::new(umem, GFP_KERNEL_ACCOUNT)?)
    } else {
        let max_shift = pd.dev().params.lock().att_page_shift;
        let umem = Umem::get(pd.device(), user, start, len, access, max_shift)?;
        Backing::User(Arc::new(umem, GFP_KERNEL_ACCOUNT)?)
    })
}

/// The record of loans of a region with these rights in that protection domain.
fn lent(rights: Rights, pd: PdId) -> Result<Option<Arc<Lent>>> {
    match rights.contains(Rights::ONE_TOUCH) {
        // A message of a peer may end it at any time.
        true => Ok(None),
        false => Lent::new(pd).map(Some),
    }
}

/// Waits until no message of the past refers to the memory of a region.
fn call_in(mr: &rdma::Mr<Siw>, lent: Option<Arc<Lent>>) {
    if let Some(lent) = lent {
        lent.call_in(mr.pd().dev());
    }
}

/// Unbinds the windows of a region as it was before its owner changed it or gave it up.
fn unbind_from(mr: &rdma::Mr<Siw>, before: &Region) {
    if before.rights.contains(Rights::MW_BIND) {
        mr.pd().windows.unbind_region(before.stag);
    }
}

#[vtable]
impl mr::Operations<Siw> for Mr {
    /// Pins user memory, or has it come on demand.
    fn reg_user(
        pd: &rdma::Pd<Siw>,
        req: &mr::UserReq,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<mr::Made<Self>> {
        let rights = rights(req.access & !flags::ON_DEMAND)?;
        let base = base(rights, req.iova, req.len)?;
        let mut udata = udata;
        // A library may choose the key. libsiw leaves it zero; then the driver chooses, so that an
        // STag is not reused soon.
        let key = match udata.as_mut() {
            Some(udata) => Some(
                udata
                    .read::<abi::ReqRegMr>(size_of::<abi::ReqRegMr>())?
                    .stag_key,
            )
            .filter(|key| *key != 0),
            None => None,
        };
        let memory = memory(pd, req.start, req.len, req.access)?;
        let lent = lent(rights, pd.id)?;
        let len = req.len;
        let mr = add(pd, key, |stag, pd| {
            let state = State {
                lent,
                ..State::new(stag, pd, rights, base, len, memory)
            };
            Entry::new(Kind::Mr, false, state, None)
        })?;
        if let Some(udata) = udata {
            udata.respond_full(&abi::RespRegMr {
                stag: mr.0.stag.0,
                pad: 0,
            })?;
        }
        // Nothing can be bound to a region that may still be given up here.
        mr.entry().open();
        Ok(mr.made(base, len))
    }

    /// Maps a dmabuf.
    fn reg_dmabuf(pd: &rdma::Pd<Siw>, req: &mr::DmabufReq) -> Result<mr::Made<Self>> {
        let rights = rights(req.access)?;
        let base = base(rights, req.iova, req.len)?;
        let writes = rights.intersects(MAY_WRITE);
        let user = pd.dev().shared.memory.clone();
        let umem = Umem::get_dmabuf(pd.device(), user, req.fd, req.offset, req.len, writes)?;
        let umem = Arc::new(umem, GFP_KERNEL_ACCOUNT)?;
        let len = req.len;
        let mr = add(pd, None, |stag, pd| {
            Entry::new(
                Kind::Mr,
                true,
                State::new(stag, pd, rights, base, len, Backing::User(umem)),
                None,
            )
        })?;
        Ok(mr.made(base, len))
    }

    /// A region that REG_MR work requests fill.
    fn alloc(pd: &rdma::Pd<Siw>, kind: mr::Type, max_sg: u32) -> Result<mr::Made<Self>> {
        let gaps = match kind {
            mr::Type::MemReg => false,
            mr::Type::SgGaps => true,
            mr::Type::Other(_) => return Err(errno::eopnotsupp()),
        };
        if max_sg == 0 {
            return Err(EINVAL);
        }
        if max_sg > limits::FAST_REG_PAGES {
            return Err(ENOMEM);
        }
        let pages = max_sg as usize;
        let live = PageList::new(pages, gaps)?;
        let shadow = PageList::new(pages, gaps)?;
        let mr = add(pd, None, |stag, pd| {
            Entry::new(
                Kind::FastMr,
                false,
                State::new(stag, pd, Rights::NONE, 0, 0, Backing::Pages(live)),
                Some(shadow),
            )
        })?;
        Ok(mr.made(0, (pages * PAGE_SIZE) as u64))
    }

    /// All of the kernel's memory, for local use by kernel consumers.
    ///
    /// A peer must never reach it. So remote rights are refused, which rules out
    /// `IB_PD_UNSAFE_GLOBAL_RKEY`, and the region cannot be invalidated.
    fn get_dma(pd: &rdma::Pd<Siw>, access: u32, grant: DmaGrant) -> Result<mr::Made<Self>> {
        let rights = rights(access)?;
        if access & (flags::REMOTE_WRITE | flags::REMOTE_READ | flags::REMOTE_ATOMIC) != 0 {
            return Err(errno::eopnotsupp());
        }
        let mr = add(pd, None, |stag, pd| {
            Entry::new(
                Kind::DmaMr,
                true,
                State::new(stag, pd, rights, 0, u64::MAX, Backing::Dma(grant)),
                None,
            )
        })?;
        Ok(mr.made(0, u64::MAX))
    }

    /// Collects the pages that the next REG_MR registers.
    fn map_sg(mr: &rdma::Mr<Siw>, sg: rdma::SgList<'_>) -> Result<usize> {
        mr.entry().shadow.fill(sg)
    }

    /// Changes a region, with a new key if memory or domain change. All rights that it had have
    /// ended on return, those of a bind in progress included, and so has what [`Lent`] is about.
    /// `EBUSY` while windows are bound to it, which hold the memory.
    fn rereg_user(mr: &rdma::Mr<Siw>, change: &mr::Change<'_, Siw>) -> Result<u32> {
        let before = mr.entry().region();
        if !matches!(before.kind, Kind::Mr) {
            return Err(EINVAL);
        }
        if before.windows != 0 {
            return Err(EBUSY);
        }
        let asked = change.access.map(|access| access & !flags::ON_DEMAND);
        let rights = asked.map_or(Ok(before.rights), rights)?;
        let old = mr.entry().user_memory().ok_or(EINVAL)?;
        let was_on_demand = matches!(old, Backing::Odp(_));
        let on_demand = change
            .access
            .map_or(was_on_demand, |access| access & flags::ON_DEMAND != 0);
        if change.memory.is_none() && on_demand != was_on_demand {
            return Err(errno::eopnotsupp());
        }
        let (start, len, iova) = change
            .memory
            .unwrap_or((old.start(), before.len, mr.iova()));
        // A peer's offsets mean the same as before, unless the memory changes.
        let base = match change.memory {
            Some(_) => base(rights, iova, len)?,
            None => before.base,
        };
        let pins_anew = rights.intersects(MAY_WRITE) && !old.is_writable();
        let memory = if change.memory.is_some() || pins_anew {
            // The address means other memory in another process.
            if change.memory.is_none() && !old.is_of_current() {
                return Err(EINVAL);
            }
            let how = if on_demand { flags::ON_DEMAND } else { 0 };
            memory(mr.pd(), start, len, rights.0 | how)?
        } else {
            old
        };
        // Other rights for the same memory need no new name; programs expect that.
        let stag = match (&change.memory, &change.pd) {
            (None, None) => before.stag,
            _ => before.stag.with_key(before.stag.key().wrapping_add(1)),
        };
        let pd = change.pd.map_or(before.pd, |pd| pd.id);
        let lent = lent(rights, pd)?;
        let (old, was_lent) = mr.entry().alter(|state| {
            state.stag = stag;
            state.rights = rights;
            state.base = base;
            state.len = len;
            state.pd = pd;
            let was_lent = core::mem::replace(&mut state.lent, lent);
            (state.backing.replace(memory), was_lent)
        });
        drop(old);
        unbind_from(mr, &before);
        call_in(mr, was_lent);
        Ok(stag.0)
    }

    /// Brings pages of regions on demand, before the return in any case. Nobody learns of a failure
    /// but a program that waits.
    fn advise(pd: &rdma::Pd<Siw>, advice: &rdma::Advice, parts: &[rdma::Sge]) -> Result {
        let by = Accessor {
            pd: pd.id,
            qp: 0,
            consumer: Consumer::User,
            remote: Rights::NONE,
        };
        for part in parts.iter().filter(|part| part.len != 0) {
            let access = Access {
                stag: Stag(part.lkey),
                to: part.addr,
                len: part.len.into(),
                need: match advice.write {
                    true => Need::LocalWrite,
                    false => Need::LocalRead,
                },
                touch: false,
                by,
            };
            let memory = pd.dev().tpt.resolve(&access, &mut LastEntry::none());
            let memory = memory.map_err(|error| match error {
                AccessError::Rights => EPERM,
                _ => EINVAL,
            })?;
            let (to, len) = (part.addr, part.len as usize);
            let pages = memory.missing(to, len, advice.write, 0).ok_or(EINVAL)?;
            match pages.prefetch(advice.fault) {
                Ok(new) => pd.dev().stats.add(Counter::PageFaults, new),
                Err(error) if advice.flush => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Revokes the rights, of windows that are bound to the region, too, and waits for users, and
    /// for 1.5 s at most for peers.
    fn dereg(mr: &rdma::Mr<Siw>) -> Result {
        let region = mr.entry().region();
        let lent = mr.entry().lent();
        mr.entry().retire();
        unbind_from(mr, &region);
        call_in(mr, lent);
        Ok(())
    }

    /// For `rdma resource show mr -dd`, which every user may run: shows no address of the kernel or
    /// of a program.
    fn describe(mr: &rdma::Mr<Siw>, out: &mut rdma::Details<'_>) -> Result {
        let region = mr.entry().region();
        out.text(c"kind", fmt!("{:?}", region.kind))?;
        out.number(c"valid", region.valid.into())?;
        out.number(c"touched", region.touched.into())?;
        out.number(c"windows", region.windows.into())?;
        let memory = mr.entry().user_memory();
        let on_demand = matches!(memory, Some(Backing::Odp(_)));
        out.number(c"odp", on_demand.into())?;
        out.hex(c"rights", region.rights.0.into())?;
        if let Some(translation) = mr.entry().translation() {
            out.text(c"order", fmt!("{:?}", translation.order))?;
            out.number(c"page_size", translation.page_size)?;
        }
        Ok(())
    }
}
