// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Protection domains and memory regions.

use super::{
    bindings::{
        ib_uverbs_alloc_pd,
        ib_uverbs_alloc_pd_resp,
        ib_uverbs_reg_mr,
        ib_uverbs_reg_mr_resp,
        ibv_context,
        ibv_mr,
        ibv_pd,
        siw_ureq_reg_mr,
        siw_uresp_reg_mr, //
    },
    command::{
        Message,
        Request,
        Response, //
    },
    device::Hold,
    errno::{
        number,
        object,
        Errno, //
    },
    object::{
        free,
        Fresh, //
    },
    private::{
        self,
        VerbsMr, //
    }, //
};
use core::ffi::{
    c_int,
    c_void, //
};

/// `alloc_pd`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let alloc = || {
        let mut pd = Fresh::<ibv_pd, Hold>::new()?;
        let mut req = Request::<ib_uverbs_alloc_pd>::zeroed();
        let mut resp = Response::<ib_uverbs_alloc_pd_resp>::zeroed();
        let (cmd, cmd_size) = req.parts();
        let (ans, ans_size) = resp.parts();
        // SAFETY: The context is valid; request and response are as long as said.
        Errno::check(unsafe {
            private::ibv_cmd_alloc_pd(context, pd.base(), cmd, cmd_size, ans, ans_size)
        })?;
        // SAFETY: The context is valid.
        Ok(pd.finish(unsafe { Hold::new(context) }))
    };
    object(alloc())
}

/// `dealloc_pd`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: The protection domain is valid.
    let result = Errno::check(unsafe { private::ibv_cmd_dealloc_pd(pd) });
    if result.is_ok() {
        // SAFETY: From `alloc_pd`; this is its last use.
        unsafe { free::<ibv_pd, Hold>(pd) };
    }
    number(result)
}

/// `reg_mr`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    hca_va: u64,
    access: c_int,
) -> *mut ibv_mr {
    let reg = || {
        let mut mr = Fresh::<VerbsMr, Hold>::new()?;
        let mut req = Request::<ib_uverbs_reg_mr, siw_ureq_reg_mr>::zeroed();
        let mut resp = Response::<ib_uverbs_reg_mr_resp, siw_uresp_reg_mr>::zeroed();
        let (cmd, cmd_size) = req.parts();
        let (ans, ans_size) = resp.parts();
        // SAFETY: The protection domain is valid; request and response are as long as said. The
        // kernel checks the memory.
        Errno::check(unsafe {
            private::ibv_cmd_reg_mr(
                pd,
                addr,
                length,
                hca_va,
                access,
                mr.base(),
                cmd,
                cmd_size,
                ans,
                ans_size,
            )
        })?;
        // SAFETY: The protection domain is valid.
        let context = unsafe { (*pd).context };
        // SAFETY: So is its context.
        Ok(mr.finish(unsafe { Hold::new(context) }).cast())
    };
    object(reg())
}

/// `dereg_mr`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn dereg_mr(mr: *mut VerbsMr) -> c_int {
    // SAFETY: The region is valid.
    let result = Errno::check(unsafe { private::ibv_cmd_dereg_mr(mr) });
    if result.is_ok() {
        // SAFETY: From `reg_mr`; this is its last use.
        unsafe { free::<VerbsMr, Hold>(mr) };
    }
    number(result)
}
