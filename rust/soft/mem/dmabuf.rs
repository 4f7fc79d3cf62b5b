// SPDX-License-Identifier: GPL-2.0

//! Buffers that devices share.
//!
//! C header: [`include/linux/dma-buf.h`](srctree/include/linux/dma-buf.h)

use core::ptr::{
    null_mut,
    NonNull, //
};

use kernel::{
    device,
    error::from_err_ptr,
    ffi,
    prelude::*,
    sync::aref::ARef, //
};

use base::bindings::{
    self,
    dma_buf_attachment, //
};
use rdma::{
    Device,
    Driver, //
};

/// A dmabuf that the CPU accesses, and that stays where it is. The drop may sleep.
///
/// # Invariants
///
/// `attach` is from `soft_dmabuf_get`, which mapped `len` bytes at `addr`, for `_device`.
pub(super) struct DmaBuf {
    attach: NonNull<dma_buf_attachment>,
    addr: NonNull<ffi::c_void>,
    len: u64,
    writable: bool,
    _device: ARef<device::Device>,
}

// SAFETY: It is of no particular thread.
unsafe impl Send for DmaBuf {}

// SAFETY: `&self` only gives numbers.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// Maps the dmabuf of a descriptor of the current process. May sleep.
    ///
    /// Fails with `EBADF` or `EINVAL` if there is none, with `EACCES` if `write` is asked for and
    /// the descriptor is for reading, and with `EOPNOTSUPP` if the CPU cannot access it as memory,
    /// or its driver may move it.
    pub(super) fn get<D: Driver>(dev: &Device<D>, fd: ffi::c_int, write: bool) -> Result<Self> {
        let (mut addr, mut len) = (null_mut(), 0);
        // SAFETY: The device is registered, or on its way there, and the result keeps it. There is
        // room for the results.
        let attach = from_err_ptr(unsafe {
            bindings::soft_dmabuf_get(dev.as_raw(), fd, write, &mut addr, &mut len)
            //
        })?;
        // INVARIANT: Just mapped: nothing is null.
        Ok(Self {
            attach: NonNull::new(attach).ok_or(EFAULT)?,
            addr: NonNull::new(addr).ok_or(EFAULT)?,
            len: len as u64,
            writable: write,
            _device: dev.as_ref().into(),
        })
    }

    /// The kernel's address of the first byte.
    pub(super) fn addr(&self) -> u64 {
        self.addr.as_ptr() as u64
    }

    /// The number of bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether it may be written.
    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: Mapped by the type invariants, and used by nobody.
        unsafe { bindings::soft_dmabuf_put(self.attach.as_ptr(), self.addr.as_ptr()) };
    }
}
