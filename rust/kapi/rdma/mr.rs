// SPDX-License-Identifier: GPL-2.0

//! Memory regions.
//!
//! The core does not allocate them. [`mem`](super::mem) has what is behind a region.

mod base;
mod sg_list;

use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::null_mut, //
};

use kernel::{
    ffi,
    prelude::*, //
};

use self::base::MrBase;

pub(crate) use self::sg_list::SgList;

use super::{
    callback::{
        count,
        missing,
        to_errno,
        Int, //
    },
    details::Details,
    device::Driver,
    pd::Pd,
    udata::Udata,
    wr::{
        self,
        Sge, //
    }, //
};
use crate::kapi::{
    bindings::{
        self,
        ib_dmah,
        ib_mr,
        ib_pd,
        ib_sge,
        ib_udata,
        scatterlist,
        sk_buff,
        uverbs_attr_bundle, //
    },
    errno, //
};

/// The operations of memory regions, which their payload implements. `()` has none of them.
///
/// Those that make a region return a [`Made`], from which the core's structure is filled in.
///
/// # Examples
///
/// ```ignore
/// #[vtable]
/// impl mr::Operations<MyDriver> for Region {
///     fn reg_user(
///         pd: &Pd<MyDriver>,
///         req: &mr::UserReq,
///         _udata: Option<&mut Udata<'_>>,
///     ) -> Result<mr::Made<Self>> {
///         let umem = Umem::get(pd.device(), req.start, req.len, req.access, MAX_SHIFT)?;
///         let (region, key) = pd.device().regions.insert(umem)?;
///         Ok(mr::Made {
///             data: region,
///             lkey: key,
///             rkey: key,
///             iova: req.iova,
///             len: req.len,
///         })
///     }
///
///     fn dereg(mr: &Mr<MyDriver>) -> Result {
///         mr.revoke();
///         Ok(())
///     }
///
///     // ...
/// }
/// ```
#[vtable]
#[allow(unused_variables, reason = "what is missing uses nothing")]
pub(crate) trait Operations<D: Driver>: Sized + Send + Sync {
    /// A program registers memory of its own. May sleep.
    fn reg_user(pd: &Pd<D>, req: &UserReq, udata: Option<&mut Udata<'_>>) -> Result<Made<Self>> {
        missing()
    }

    /// A program registers part of a dmabuf. May sleep.
    fn reg_dmabuf(pd: &Pd<D>, req: &DmabufReq) -> Result<Made<Self>> {
        missing()
    }

    /// A consumer of the kernel wants a region for `max_sg` pages, for fast registration. May
    /// sleep.
    fn alloc(pd: &Pd<D>, kind: Type, max_sg: u32) -> Result<Made<Self>> {
        missing()
    }

    /// A consumer of the kernel wants a region of all memory. `access` is of [`access`]. May sleep.
    fn get_dma(pd: &Pd<D>, access: u32, grant: DmaGrant) -> Result<Made<Self>> {
        missing()
    }

    /// Maps a list into a region. Returns how many of its elements were mapped. Any context.
    fn map_sg(mr: &Mr<D>, sg: SgList<'_>) -> Result<usize> {
        missing()
    }

    /// A program changes a region of its own, whose rights so far end. Returns the key, which may
    /// be a new one. After an error the region is as it was. No other verb of the region runs
    /// meanwhile. [`Mr::pd`] and [`Mr::iova`] are those from before. May sleep.
    fn rereg_user(mr: &Mr<D>, change: &Change<'_, D>) -> Result<u32> {
        missing()
    }

    /// A program says what it will do with memory of its regions. May sleep.
    fn advise(pd: &Pd<D>, advice: &Advice, parts: &[Sge]) -> Result {
        missing()
    }

    /// The region is being deregistered. After success the payload is dropped; after an error the
    /// region stays. May sleep.
    fn dereg(mr: &Mr<D>) -> Result {
        missing()
    }

    /// Tells about a region what the core does not know. May sleep.
    fn describe(mr: &Mr<D>, out: &mut Details<'_>) -> Result {
        missing()
    }
}

#[vtable]
impl<D: Driver> Operations<D> for () {}

/// Access rights of regions, windows and QPs (`enum ib_access_flags`).
pub(crate) mod access {
    use crate::kapi::bindings as b;

    /// The region's own side may write to it.
    pub(crate) const LOCAL_WRITE: u32 = b::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
    /// A peer may write to it.
    pub(crate) const REMOTE_WRITE: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
    /// A peer may read it.
    pub(crate) const REMOTE_READ: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_READ;
    /// A peer may change it by atomic operations.
    pub(crate) const REMOTE_ATOMIC: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
    /// Memory windows may be bound to it.
    pub(crate) const MW_BIND: u32 = b::ib_access_flags_IB_ACCESS_MW_BIND;
    /// Offsets, not addresses, name the bytes.
    pub(crate) const ZERO_BASED: u32 = b::ib_access_flags_IB_ZERO_BASED;
    /// Its pages come when they are used. Not a right.
    pub(crate) const ON_DEMAND: u32 = b::ib_access_flags_IB_ACCESS_ON_DEMAND;
    /// Rights a provider may ignore.
    pub(crate) const OPTIONAL_RANGE: u32 = 0x3ff0_0000;
}

/// A region of user memory to be registered.
#[derive(Clone, Copy)]
pub(crate) struct UserReq {
    /// The address of the first byte in the program.
    pub(crate) start: u64,
    /// The number of bytes.
    pub(crate) len: u64,
    /// The address of the first byte in work requests.
    pub(crate) iova: u64,
    /// The requested rights, of [`access`].
    pub(crate) access: u32,
}

/// A part of a dmabuf to be registered.
#[derive(Clone, Copy)]
pub(crate) struct DmabufReq {
    /// The descriptor in the current process.
    pub(crate) fd: i32,
    /// The first byte.
    pub(crate) offset: u64,
    /// The number of bytes.
    pub(crate) len: u64,
    /// The address of the first byte in work requests.
    pub(crate) iova: u64,
    /// The requested rights, of [`access`].
    pub(crate) access: u32,
}

/// The advice of a program about its memory (`ibv_advise_mr(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    /// The pages are to be brought, not only found if they are there.
    pub(crate) fault: bool,
    /// They will be written to.
    pub(crate) write: bool,
    /// The program waits, and wants to know of failures.
    pub(crate) flush: bool,
}

/// What becomes of a region (`ibv_rereg_mr(3)`); what is `None` stays.
pub(crate) struct Change<'a, D: Driver> {
    /// Other memory: address of the first byte in the program, number of bytes, and address of the
    /// first byte in work requests.
    pub(crate) memory: Option<(u64, u64, u64)>,
    /// Another protection domain.
    pub(crate) pd: Option<&'a Pd<D>>,
    /// Other rights, of [`access`].
    pub(crate) access: Option<u32>,
}

/// Permission to access all memory of the kernel, one for each `get_dma_mr`. It cannot be
/// copied.
///
/// Addresses in such a region are the kernel's own, and kernel consumers answer for them as they do
/// for any other pointer. A provider must let only QPs of kernel consumers use it, and only for
/// local access.
///
/// # Invariants
///
/// A kernel consumer asked for it, which vouches for every address in its work requests with the
/// key of the region: the memory is there until the request completes.
pub(crate) struct DmaGrant(());

impl DmaGrant {
    /// # Safety
    ///
    /// The caller is executing `get_dma_mr` for a kernel consumer.
    unsafe fn new() -> Self {
        // INVARIANT: By the requirements of this function, and the contract of `ib_sge`.
        Self(())
    }
}

/// The kind of region that a kernel consumer requests (`enum ib_mr_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// Whole pages, except at both ends.
    MemReg,
    /// Elements of any length and alignment.
    SgGaps,
    /// Any other, by its number.
    Other(u32),
}

impl Type {
    fn from_raw(raw: bindings::ib_mr_type) -> Self {
        match raw {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG => Self::MemReg,
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS => Self::SgGaps,
            other => Self::Other(other),
        }
    }
}

/// A region that a provider has made for a request.
pub(crate) struct Made<T> {
    /// The payload.
    pub(crate) data: T,
    /// The key for local access.
    pub(crate) lkey: u32,
    /// The key for access by peers.
    pub(crate) rkey: u32,
    /// The address of the first byte in work requests.
    pub(crate) iova: u64,
    /// The number of bytes.
    pub(crate) len: u64,
}

/// A memory region, with the provider's payload [`Driver::Mr`]. It is not counted: the core frees
/// it once [`Operations::dereg`] has succeeded.
#[repr(C)]
pub(crate) struct Mr<D: Driver> {
    base: MrBase,
    _p: PhantomData<fn() -> D>,
    data: D::Mr,
}

// SAFETY: The C structure is only read, or changed by the one call that may do so.
unsafe impl<D: Driver> Send for Mr<D> {}

// SAFETY: As above; the payload is `Sync` by the bound of `Operations`.
unsafe impl<D: Driver> Sync for Mr<D> {}

impl<D: Driver> Deref for Mr<D> {
    type Target = D::Mr;

    fn deref(&self) -> &D::Mr {
        &self.data
    }
}

impl<D: Driver> Mr<D> {
    /// Makes a region with `make`, and gives it to the core.
    fn create(make: impl FnOnce() -> Result<Made<D::Mr>>) -> Result<*mut ib_mr> {
        let slot = KBox::<Self>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let new = make()?;
        let mut ibmr: ib_mr = pin_init::zeroed();
        ibmr.lkey = new.lkey;
        ibmr.rkey = new.rkey;
        ibmr.iova = new.iova;
        ibmr.length = new.len;
        let mr = slot.write(Self {
            base: MrBase::new(ibmr),
            _p: PhantomData,
            data: new.data,
        });
        Ok(KBox::into_raw(mr).cast())
    }

    /// # Safety
    ///
    /// `raw` is from [`Self::create`], initialised by the core, and stays during `'a`.
    pub(super) unsafe fn from_raw<'a>(raw: *const ib_mr) -> &'a Self {
        // SAFETY: By the requirements of this function; `ibmr` is at offset 0.
        unsafe { &*raw.cast() }
    }

    /// # Safety
    ///
    /// `raw` is from [`Self::create`], and nobody uses it any more.
    unsafe fn destroy(raw: *mut ib_mr) {
        // SAFETY: By the requirements of this function.
        drop(unsafe { KBox::from_raw(raw.cast::<Self>()) });
    }

    /// The protection domain of the region.
    pub(crate) fn pd(&self) -> &Pd<D> {
        // SAFETY: Valid by the type invariants; the core sets it after creation.
        let pd = unsafe { (*self.base.as_raw()).pd };
        // SAFETY: The core counts the users of the domain.
        unsafe { Pd::from_raw(pd) }
    }

    /// The address of the first byte, as the consumer has it now.
    pub(crate) fn iova(&self) -> u64 {
        self.base.iova()
    }

    fn base(&self) -> &MrBase {
        &self.base
    }
}

fn mr_ptr(result: Result<*mut ib_mr>) -> *mut ib_mr {
    result.unwrap_or_else(Error::to_ptr)
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn reg_user_mr<D: Driver>(
    pd: *mut ib_pd,
    start: u64,
    len: u64,
    iova: u64,
    access: Int,
    dmah: *mut ib_dmah,
    udata: *mut ib_udata,
) -> *mut ib_mr {
    if !dmah.is_null() {
        return errno::eopnotsupp().to_ptr();
    }
    // SAFETY: By the requirements of this function.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    // SAFETY: By *verb*: null, or of the verb that this call executes.
    let mut udata = unsafe { Udata::from_raw(udata) };
    let req = UserReq {
        start,
        len,
        iova,
        access: access as u32,
    };
    mr_ptr(Mr::<D>::create(|| {
        <D::Mr>::reg_user(pd, &req, udata.as_mut())
    }))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn reg_user_mr_dmabuf<D: Driver>(
    pd: *mut ib_pd,
    offset: u64,
    len: u64,
    iova: u64,
    fd: Int,
    access: Int,
    dmah: *mut ib_dmah,
    _attrs: *mut uverbs_attr_bundle,
) -> *mut ib_mr {
    if !dmah.is_null() {
        return errno::eopnotsupp().to_ptr();
    }
    // SAFETY: By the requirements of this function.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    let req = DmabufReq {
        fd,
        offset,
        len,
        iova,
        access: access as u32,
    };
    mr_ptr(Mr::<D>::create(|| <D::Mr>::reg_dmabuf(pd, &req)))
}

/// Changes a region in place, which null says to the core. The core then stores the domain, the
/// address and the length.
///
/// # Safety
///
/// As `callback` says. Only uverbs calls it, and holds the region exclusively.
pub(super) unsafe extern "C" fn rereg_user_mr<D: Driver>(
    mr: *mut ib_mr,
    flags: Int,
    start: u64,
    len: u64,
    iova: u64,
    access: Int,
    pd: *mut ib_pd,
    udata: *mut ib_udata,
) -> *mut ib_mr {
    let asks = |flag: u32| flags as u32 & flag != 0;
    // SAFETY: By the requirements of this function.
    let this = unsafe { Mr::<D>::from_raw(mr) };
    let change = Change {
        memory: asks(bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS).then_some((start, len, iova)),
        pd: asks(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD)
            // SAFETY: By *live*.
            .then(|| unsafe { Pd::from_raw(pd) }),
        access: asks(bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS).then_some(access as u32),
    };
    // SAFETY: By *verb*: of the verb that this call executes.
    let checked = match unsafe { Udata::from_raw(udata) } {
        Some(mut udata) => udata.expect_no_request(),
        None => Err(EINVAL),
    };
    match checked.and_then(|()| <D::Mr>::rereg_user(this, &change)) {
        Ok(key) => {
            // SAFETY: The region is live, and others only show its keys.
            unsafe { (&raw mut (*mr).lkey).write_volatile(key) };
            // SAFETY: The region is live, and only this call changes its keys.
            unsafe { (&raw mut (*mr).rkey).write_volatile(key) };
            null_mut()
        }
        Err(e) => e.to_ptr(),
    }
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn alloc_mr<D: Driver>(
    pd: *mut ib_pd,
    kind: bindings::ib_mr_type,
    max_sg: u32,
) -> *mut ib_mr {
    // SAFETY: By the requirements of this function.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    mr_ptr(Mr::<D>::create(|| {
        <D::Mr>::alloc(pd, Type::from_raw(kind), max_sg)
    }))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn get_dma_mr<D: Driver>(pd: *mut ib_pd, access: Int) -> *mut ib_mr {
    // SAFETY: By the requirements of this function.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    if pd.is_user() {
        return EPERM.to_ptr();
    }
    mr_ptr(Mr::<D>::create(|| {
        // SAFETY: The PD, and thus the caller, is not a user's.
        let grant = unsafe { DmaGrant::new() };
        <D::Mr>::get_dma(pd, access as u32, grant)
    }))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn map_mr_sg<D: Driver>(
    mr: *mut ib_mr,
    sg: *mut scatterlist,
    nents: Int,
    offset: *mut ffi::c_uint,
) -> Int {
    // SAFETY: By the requirements of this function.
    let mr = unsafe { Mr::<D>::from_raw(mr) };
    // SAFETY: By *valid*: the list and `offset` are those of this call. The consumer keeps the
    // memory that it maps, see `ib_map_mr_sg()`.
    let sg = unsafe { SgList::from_raw(mr.base(), sg, nents, offset) };
    <D::Mr>::map_sg(mr, sg).map_or_else(Error::to_errno, count)
}

/// # Safety
///
/// As `callback` says. Only uverbs calls it.
pub(super) unsafe extern "C" fn advise_mr<D: Driver>(
    pd: *mut ib_pd,
    advice: bindings::ib_uverbs_advise_mr_advice,
    flags: u32,
    parts: *mut ib_sge,
    count: u32,
    _attrs: *mut uverbs_attr_bundle,
) -> Int {
    let (fault, write) = match advice {
        bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => (true, false),
        bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => {
            (true, true)
        }
        bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => {
            (false, false)
        }
        _ => return errno::eopnotsupp().to_errno(),
    };
    let flush = bindings::ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
    let advice = Advice {
        fault,
        write,
        flush: flags & flush != 0,
    };
    // SAFETY: By *live*.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    // SAFETY: By *valid*.
    let parts = unsafe { wr::sges(parts, i32::try_from(count).unwrap_or(i32::MAX)) };
    to_errno(<D::Mr>::advise(pd, &advice, parts))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn dereg_mr<D: Driver>(mr: *mut ib_mr, _udata: *mut ib_udata) -> Int {
    // SAFETY: By the requirements of this function.
    let this = unsafe { Mr::<D>::from_raw(mr) };
    to_errno(<D::Mr>::dereg(this).inspect(|()| {
        // SAFETY: The core does not use it any more if this succeeds.
        unsafe { Mr::<D>::destroy(mr) };
    }))
}

/// # Safety
///
/// As `callback` says. The core keeps the region during the call.
pub(super) unsafe extern "C" fn fill_res_mr_entry<D: Driver>(
    msg: *mut sk_buff,
    mr: *mut ib_mr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let mr = unsafe { Mr::<D>::from_raw(mr) };
    // SAFETY: By *valid*: the core is filling `msg`, and waits for this call.
    to_errno(unsafe { Details::put(msg, |out| <D::Mr>::describe(mr, out)) })
}
