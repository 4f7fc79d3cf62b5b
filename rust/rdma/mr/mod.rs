// SPDX-License-Identifier: GPL-2.0

//! Memory regions.
//!
//! The core does not allocate them.

mod attr;
mod common;
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

use self::common::MrBase;

pub use self::{
    attr::{
        access,
        Advice,
        Change,
        DmaGrant,
        DmabufReq,
        Type,
        UserReq, //
    },
    sg_list::SgList, //
};

use crate::{
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
use base::{
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
///         let memory = Memory::pin(pd.device(), req.start, req.len, req.access)?;
///         let (region, key) = pd.device().regions.insert(memory)?;
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
pub trait Operations<D: Driver>: Sized + Send + Sync {
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

/// A region that a provider has made for a request.
pub struct Made<T> {
    /// The payload.
    pub data: T,
    /// The key for local access.
    pub lkey: u32,
    /// The key for access by peers.
    pub rkey: u32,
    /// The address of the first byte in work requests.
    pub iova: u64,
    /// The number of bytes.
    pub len: u64,
}

/// A memory region, with the provider's payload [`Driver::Mr`]. It is not counted: the core frees
/// it once [`Operations::dereg`] has succeeded.
#[repr(C)]
pub struct Mr<D: Driver> {
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
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: Valid by the type invariants; the core sets it after creation.
        let pd = unsafe { (*self.base.as_raw()).pd };
        // SAFETY: The core counts the users of the domain.
        unsafe { Pd::from_raw(pd) }
    }

    /// The address of the first byte, as the consumer has it now.
    pub fn iova(&self) -> u64 {
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
