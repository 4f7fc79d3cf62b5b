// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Protection domains, and thread and parent domains, of which the kernel does not know.
//!
//! A parent domain is a protection domain with advice: that one thread at a time uses what is made
//! in it, and where to allocate memory. The library has no use for either. Its queues are the
//! kernel's memory, and its locks cost little when nobody else wants them.

use super::{
    bindings::{
        ib_uverbs_alloc_pd,
        ib_uverbs_alloc_pd_resp,
        ibv_context,
        ibv_parent_domain_init_attr,
        ibv_parent_domain_init_attr_mask_IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS as ALLOCATORS,
        ibv_parent_domain_init_attr_mask_IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT as PD_CONTEXT,
        ibv_pd,
        ibv_td,
        ibv_td_init_attr, //
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
        payload,
        Fresh,
        Use,
        Users, //
    },
    private, //
};
use core::ffi::c_int;

/// What belongs to a protection domain.
struct Pd {
    hold: Hold,
    users: Users,
    kind: Kind,
}

/// What a protection domain is to the kernel.
enum Kind {
    /// One of its own.
    Real,
    /// Another one's name.
    Parent { _pd: Member, _td: Option<Use> },
}

/// What belongs to a thread domain.
struct Td {
    _hold: Hold,
    users: Users,
}

/// The membership of an object in a protection domain. It holds the context, too.
pub(super) struct Member {
    hold: Hold,
    _pd: Use,
}

impl Member {
    /// # Safety
    ///
    /// `pd` is one of those made here, and in use.
    pub(super) unsafe fn new(pd: *mut ibv_pd) -> Self {
        // SAFETY: By the requirements of this function.
        let domain = unsafe { payload::<ibv_pd, Pd>(pd) };
        Self {
            hold: domain.hold.clone(),
            // SAFETY: A domain with users is not freed.
            _pd: unsafe { Use::new(&domain.users) },
        }
    }

    /// The features that library and driver use in the context.
    pub(super) fn features(&self) -> u32 {
        self.hold.features()
    }

    /// The descriptor of the device.
    pub(super) fn fd(&self) -> c_int {
        self.hold.fd()
    }

    /// Whether the context is imported.
    pub(super) fn imported(&self) -> bool {
        self.hold.imported()
    }
}

/// A use of a parent domain. `EINVAL` if `pd` is another protection domain.
///
/// # Safety
///
/// `pd` is null or one of those made here, and in use.
pub(super) unsafe fn parent(pd: *mut ibv_pd) -> Result<Member, Errno> {
    if pd.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: By the requirements of this function.
    match unsafe { payload::<ibv_pd, Pd>(pd) }.kind {
        // SAFETY: By the requirements of this function.
        Kind::Parent { .. } => Ok(unsafe { Member::new(pd) }),
        Kind::Real => Err(Errno::EINVAL),
    }
}

/// `alloc_pd`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let alloc = || {
        let mut pd = Fresh::<ibv_pd, Pd>::new()?;
        let mut req = Request::<ib_uverbs_alloc_pd>::zeroed();
        let mut resp = Response::<ib_uverbs_alloc_pd_resp>::zeroed();
        let (cmd, cmd_size) = req.parts();
        let (ans, ans_size) = resp.parts();
        // SAFETY: The context is valid; request and response are as long as said.
        Errno::check(unsafe {
            private::ibv_cmd_alloc_pd(context, pd.base(), cmd, cmd_size, ans, ans_size)
        })?;
        Ok(pd.finish(Pd {
            // SAFETY: The context is valid.
            hold: unsafe { Hold::new(context) },
            users: Users::default(),
            kind: Kind::Real,
        }))
    };
    object(alloc())
}

/// `dealloc_pd`, of parent domains as well. `EBUSY` while something is in it.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let dealloc = || {
        // SAFETY: The protection domain is valid.
        let domain = unsafe { payload::<ibv_pd, Pd>(pd) };
        domain.users.none()?;
        if let Kind::Real = domain.kind {
            // SAFETY: The protection domain is valid.
            Errno::check(unsafe { private::ibv_cmd_dealloc_pd(pd) })?;
        }
        // SAFETY: It was made here; this is its last use.
        unsafe { free::<ibv_pd, Pd>(pd) };
        Ok(())
    };
    number(dealloc())
}

/// `import_pd`: a protection domain that another context of the same open device has allocated.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    // The kernel checks the handle when it is used.
    let base = ibv_pd { context, handle };
    let import = || {
        Ok(Fresh::with(base)?.finish(Pd {
            // SAFETY: The context is valid.
            hold: unsafe { Hold::new(context) },
            users: Users::default(),
            kind: Kind::Real,
        }))
    };
    object(import())
}

/// `unimport_pd`: the protection domain stays. So does this name of it while something is in it,
/// because there is no way to refuse.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: The protection domain is valid.
    let domain = unsafe { payload::<ibv_pd, Pd>(pd) };
    if domain.users.none().is_ok() {
        // SAFETY: From `import_pd`; this is its last use.
        unsafe { free::<ibv_pd, Pd>(pd) };
    }
}

/// `alloc_td`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    let alloc = || {
        // SAFETY: The attributes are valid.
        if unsafe { (*attr).comp_mask } != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Fresh::with(ibv_td { context })?.finish(Td {
            // SAFETY: The context is valid.
            _hold: unsafe { Hold::new(context) },
            users: Users::default(),
        }))
    };
    object(alloc())
}

/// `dealloc_td`. `EBUSY` while a parent domain has it.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: The thread domain is valid.
    let result = unsafe { payload::<ibv_td, Td>(td) }.users.none();
    if result.is_ok() {
        // SAFETY: From `alloc_td`; this is its last use.
        unsafe { free::<ibv_td, Td>(td) };
    }
    number(result)
}

/// `alloc_parent_domain`. The allocators are never called.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    let alloc = || {
        // The allocators may not be there: older programs have shorter attributes.
        // SAFETY: The attributes are valid.
        let pd = unsafe { (*attr).pd };
        // SAFETY: The attributes are valid.
        let td = unsafe { (*attr).td };
        // SAFETY: The attributes are valid.
        let mask = unsafe { (*attr).comp_mask };
        if pd.is_null() || mask & !(ALLOCATORS | PD_CONTEXT) != 0 {
            return Err(Errno::EINVAL);
        }
        let base = ibv_pd {
            context,
            // SAFETY: The protection domain is valid.
            handle: unsafe { (*pd).handle },
        };
        let td = if td.is_null() {
            None
        } else {
            // SAFETY: From `alloc_td`, and in use.
            let td = unsafe { payload::<ibv_td, Td>(td) };
            // SAFETY: A domain with users is not freed.
            Some(unsafe { Use::new(&td.users) })
        };
        Ok(Fresh::with(base)?.finish(Pd {
            // SAFETY: The context is valid.
            hold: unsafe { Hold::new(context) },
            users: Users::default(),
            kind: Kind::Parent {
                // SAFETY: The protection domain is valid.
                _pd: unsafe { Member::new(pd) },
                _td: td,
            },
        }))
    };
    object(alloc())
}
