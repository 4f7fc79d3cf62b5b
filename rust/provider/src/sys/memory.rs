// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Memory regions.

use super::{
    bindings::{
        ib_uverbs_reg_mr,
        ib_uverbs_reg_mr_resp,
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
    domain::Member,
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
        let mut mr = Fresh::<VerbsMr, Member>::new()?;
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
        Ok(mr.finish(unsafe { Member::new(pd) }).cast())
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
        // SAFETY: From `reg_mr` or `import_mr`; this is its last use.
        unsafe { free::<VerbsMr, Member>(mr) };
    }
    number(result)
}

/// `import_mr`: a region that another context of the same open device has registered.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    let import = || {
        let mut mr = Fresh::<VerbsMr, Member>::new()?;
        // SAFETY: The protection domain is valid. The kernel checks the handle.
        Errno::check(unsafe { private::ibv_cmd_query_mr(pd, mr.base(), handle) })?;
        // SAFETY: The protection domain is valid.
        Ok(mr.finish(unsafe { Member::new(pd) }).cast())
    };
    object(import())
}

/// `unimport_mr`: the region stays.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: From `import_mr`; this is its last use.
    unsafe { free::<VerbsMr, Member>(mr.cast()) };
}
