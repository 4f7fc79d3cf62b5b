// SPDX-License-Identifier: GPL-2.0

//! What a user's provider library and ours tell each other along with a verb.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use core::{
    marker::PhantomData,
    mem::MaybeUninit, //
};

use kernel::{
    error::to_result,
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use zerocopy::Immutable;

use base::bindings::{
    self,
    ib_udata, //
};

/// The private part of a verb's request and response. It is the program's memory: what reads or
/// writes it may sleep.
///
/// # Invariants
///
/// `raw` is part of the bundle of a verb that is being executed.
pub struct Udata<'a> {
    raw: *mut ib_udata,
    _p: PhantomData<&'a mut ib_udata>,
}

impl Udata<'_> {
    /// # Safety
    ///
    /// `raw` is null, or the udata of a verb that is being executed during the lifetime.
    pub(super) unsafe fn from_raw(raw: *mut ib_udata) -> Option<Self> {
        // INVARIANT: By the requirements of this function.
        (!raw.is_null()).then_some(Self {
            raw,
            _p: PhantomData,
        })
    }

    /// The size of the request.
    pub fn inlen(&self) -> usize {
        // SAFETY: Valid by the type invariants.
        unsafe { (*self.raw).inlen }
    }

    /// The room for the response.
    pub fn outlen(&self) -> usize {
        // SAFETY: Valid by the type invariants.
        unsafe { (*self.raw).outlen }
    }

    /// Reads the request. One shorter than `T` is taken to end in zeros, if it has at least `min`
    /// bytes; in a longer one the rest must be zero (`EOPNOTSUPP`).
    pub fn read<T: FromBytes>(&mut self, min: usize) -> Result<T> {
        let mut req = MaybeUninit::<T>::zeroed();
        // SAFETY: `raw` is valid by the type invariants, `req` is as long as it says.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(
                self.raw,
                req.as_mut_ptr().cast(),
                size_of::<T>(),
                min,
            )
        })?;
        // SAFETY: Any bytes make a valid `T`, which is `FromBytes`.
        Ok(unsafe { req.assume_init() })
    }

    /// Fails if there is a request that is not all zeros.
    pub(super) fn expect_no_request(&mut self) -> Result {
        if self.inlen() == 0 {
            return Ok(());
        }
        // SAFETY: `raw` is valid by the type invariants; nothing is stored.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(self.raw, core::ptr::null_mut(), 0, 0)
        })
    }

    /// Fills the room for the response with zeros.
    pub(super) fn respond_nothing(&mut self) -> Result {
        // SAFETY: `raw` is valid by the type invariants; nothing is read.
        to_result(unsafe { bindings::_ib_respond_udata(self.raw, core::ptr::null(), 0) })
    }

    /// Writes the response, cut off where the room for it ends.
    pub fn respond<T: Immutable + IntoBytes>(&mut self, resp: &T) -> Result {
        // SAFETY: `raw` is valid by the type invariants. `resp` has no uninitialised bytes,
        // because it is `IntoBytes`, and none that change meanwhile, because it is `Immutable`.
        to_result(unsafe {
            bindings::_ib_respond_udata(self.raw, (&raw const *resp).cast(), size_of::<T>())
        })
    }

    /// Writes a response to `addr`, which the program has named in its request, because the verb
    /// has no response of its own.
    pub fn respond_at<T: Immutable + IntoBytes>(&mut self, addr: u64, resp: &T) -> Result {
        let addr = usize::try_from(addr).map_err(|_| EFAULT)?;
        UserSlice::new(UserPtr::from_addr(addr), size_of::<T>())
            .writer()
            .write_slice(resp.as_bytes())
    }

    /// Writes the response; fails if there is not enough room for it.
    pub fn respond_full<T: Immutable + IntoBytes>(&mut self, resp: &T) -> Result {
        if self.outlen() < size_of::<T>() {
            return Err(EINVAL);
        }
        self.respond(resp)
    }
}
