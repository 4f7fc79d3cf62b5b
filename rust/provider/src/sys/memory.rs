// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Memory regions.

use super::{
    bindings::{
        ib_uverbs_reg_mr,
        ib_uverbs_reg_mr_resp,
        ib_uverbs_rereg_mr,
        ib_uverbs_rereg_mr_resp,
        ibv_mr,
        ibv_pd,
        ibv_rereg_mr_flags_IBV_REREG_MR_CHANGE_PD as CHANGE_PD,
        ibv_sge,
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
        payload,
        Fresh,
        Section, //
    },
    private::{
        self,
        VerbsMr, //
    }, //
};
use core::{
    ffi::{
        c_int,
        c_void, //
    },
    ptr::null_mut, //
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
        let mut mr = Fresh::<VerbsMr, Section<Member>>::new()?;
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
        Ok(mr.finish(Section::of(unsafe { Member::new(pd) })).cast())
    };
    object(reg())
}

/// `reg_dmabuf_mr`: part of a buffer of the descriptor `fd`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let reg = || {
        let mut mr = Fresh::<VerbsMr, Section<Member>>::new()?;
        // SAFETY: The protection domain is valid; the driver has no attributes of its own. The
        // kernel checks the buffer.
        Errno::check(unsafe {
            private::ibv_cmd_reg_dmabuf_mr(
                pd,
                offset,
                length,
                iova,
                fd,
                access,
                mr.base(),
                null_mut(),
            )
        })?;
        // SAFETY: The protection domain is valid.
        Ok(mr.finish(Section::of(unsafe { Member::new(pd) })).cast())
    };
    object(reg())
}

/// `rereg_mr`. The keys may change. If it fails, the region is as it was.
///
/// # Safety
///
/// As `ops` says. The protection domain is valid if `flags` ask for another one.
pub(super) unsafe extern "C" fn rereg_mr(
    mr: *mut VerbsMr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let mut req = Request::<ib_uverbs_rereg_mr>::zeroed();
    let mut resp = Response::<ib_uverbs_rereg_mr_resp>::zeroed();
    let (cmd, cmd_size) = req.parts();
    let (ans, ans_size) = resp.parts();
    // SAFETY: The region is valid, and so is the protection domain if it is looked at; request and
    // response are as long as said. The kernel checks the memory.
    let result = Errno::check(unsafe {
        private::ibv_cmd_rereg_mr(
            mr,
            flags as u32,
            addr,
            length,
            addr.expose_provenance() as u64,
            access,
            pd,
            cmd,
            cmd_size,
            ans,
            ans_size,
        )
    });
    if result.is_ok() && flags as u32 & CHANGE_PD != 0 {
        // SAFETY: From `reg_mr`, and nobody else uses a region that is being changed.
        let member = unsafe { payload::<VerbsMr, Section<Member>>(mr) };
        // SAFETY: The protection domain is valid.
        let new = unsafe { Member::new(pd) };
        // SAFETY: Nobody else uses a region that is being changed.
        *unsafe { member.inside() } = Some(new);
    }
    number(result)
}

/// `advise_mr`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sges: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    // SAFETY: The protection domain is valid, and the list has as many elements. The kernel checks
    // what they say.
    let advised = unsafe { private::ibv_cmd_advise_mr(pd, advice, flags, sges, num_sge) };
    number(Errno::check(advised))
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
        unsafe { free::<VerbsMr, Section<Member>>(mr) };
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
        let mut mr = Fresh::<VerbsMr, Section<Member>>::new()?;
        // SAFETY: The protection domain is valid. The kernel checks the handle.
        Errno::check(unsafe { private::ibv_cmd_query_mr(pd, mr.base(), handle) })?;
        // SAFETY: The protection domain is valid.
        Ok(mr.finish(Section::of(unsafe { Member::new(pd) })).cast())
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
    unsafe { free::<VerbsMr, Section<Member>>(mr.cast()) };
}
