// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! A program on top of the library.

use super::{
    fake::*,
    *, //
};
use core::ffi::{
    c_char,
    c_uint, //
};
use std::{
    io::Seek,
    os::fd::FromRawFd, //
};

unsafe extern "C" {
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
}

/// A file that can be mapped at any offset, as far as there are any: where a device has no queue it
/// refuses, but here an access would be a bus error.
fn device() -> File {
    // SAFETY: The name is text.
    let fd = unsafe { memfd_create(c"device".as_ptr(), 0) };
    assert!(fd >= 0);
    // SAFETY: Nobody else has it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(i64::MAX as u64).unwrap();
    file
}

/// A program that has opened the device.
pub(super) struct Program {
    pub(super) file: File,
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    is_open: bool,
    pub(super) ops: &'static VerbsContextOps,
}

impl Program {
    /// Opens the device, or says why the library refuses.
    pub(super) fn open(kernel_says: Kernel) -> Result<Self, Errno> {
        kernel(|kernel| *kernel = kernel_says);
        let file = device();
        // SAFETY: The library has registered a constant table.
        let ops = unsafe { &*DEVICE_OPS.load(Relaxed) };
        let (alloc, fd) = (ops.alloc_context.unwrap(), file.as_raw_fd());
        // SAFETY: The device is not looked at.
        let outer = made(|| unsafe { alloc(null_mut(), fd, null_mut()) })?;
        Ok(Self::with(outer, file))
    }

    /// Imports the device, or says why the library refuses.
    pub(super) fn import(kernel_says: Kernel) -> Result<Self, Errno> {
        kernel(|kernel| *kernel = kernel_says);
        let file = device();
        // SAFETY: The library has registered a constant table.
        let ops = unsafe { &*DEVICE_OPS.load(Relaxed) };
        // SAFETY: The device is not looked at.
        let outer = made(|| unsafe { ops.import_context.unwrap()(null_mut(), file.as_raw_fd()) })?;
        Ok(Self::with(outer, file))
    }

    fn with(outer: *mut verbs_context, file: File) -> Self {
        // SAFETY: It is a context.
        let context = unsafe { &raw mut (*outer).context };
        // SAFETY: The library has set a constant table.
        let ops = unsafe { &*CONTEXT_OPS.get() };
        Self {
            file,
            context,
            // SAFETY: The context is valid.
            pd: unsafe { ops.alloc_pd.unwrap()(context) },
            is_open: true,
            ops,
        }
    }

    /// An extended completion queue, and what the error was.
    pub(super) fn cq_ex(&self, mut attr: ibv_cq_init_attr_ex) -> Result<*mut ibv_cq_ex, Errno> {
        attr.cqe = 4;
        // SAFETY: The context and the attributes are valid.
        made(|| unsafe { self.ops.create_cq_ex.unwrap()(self.context, &mut attr) })
    }

    /// A queue pair for which the program builds work requests, and what the error was.
    pub(super) fn qp_ex(&self, comp_mask: u32, ops: u64) -> Result<*mut ibv_qp_ex, Errno> {
        let mut attr = ibv_qp_init_attr_ex {
            comp_mask,
            pd: self.pd,
            send_ops_flags: ops,
            ..Default::default()
        };
        attr.cap.max_send_sge = 2;
        // SAFETY: The context and the attributes are valid.
        let qp = made(|| unsafe { self.ops.create_qp_ex.unwrap()(self.context, &mut attr) });
        qp.map(<*mut ibv_qp>::cast)
    }

    /// The LID of the port.
    pub(super) fn lid(&self) -> u16 {
        let mut attr = ibv_port_attr::default();
        // SAFETY: The context and the room for attributes are valid.
        let result = unsafe { self.ops.query_port.unwrap()(self.context, 1, &mut attr) };
        assert_eq!(result, 0);
        attr.lid
    }

    /// What the driver sees of a queue.
    pub(super) fn queue(&self, key: u64) -> Shared {
        Shared::map(&Offer::of(&self.file, key, 1), 512).unwrap()
    }

    pub(super) fn cq(&self) -> *mut ibv_cq {
        // SAFETY: The context is valid.
        unsafe { self.ops.create_cq.unwrap()(self.context, 4, null_mut(), 0) }
    }

    pub(super) fn qp(&mut self, srq: *mut ibv_srq) -> *mut ibv_qp {
        let mut attr = ibv_qp_init_attr {
            srq,
            ..Default::default()
        };
        attr.cap.max_send_sge = 2;
        attr.cap.max_recv_sge = 1;
        // SAFETY: The protection domain and the attributes are valid.
        unsafe { self.ops.create_qp.unwrap()(self.pd, &mut attr) }
    }

    pub(super) fn srq(&mut self) -> *mut ibv_srq {
        let mut attr = ibv_srq_init_attr::default();
        attr.attr.max_sge = 1;
        // SAFETY: The protection domain and the attributes are valid.
        unsafe { self.ops.create_srq.unwrap()(self.pd, &mut attr) }
    }

    /// Posts the list, and returns the error and the index of the work request that failed.
    pub(super) fn post_send(
        &self,
        qp: *mut ibv_qp,
        list: &mut [ibv_send_wr],
    ) -> Result<(), (c_int, usize)> {
        for at in 1..list.len() {
            list[at - 1].next = &raw mut list[at];
        }
        let mut bad = null_mut();
        // SAFETY: The queue pair and the list are valid.
        match unsafe { self.ops.post_send.unwrap()(qp, list.as_mut_ptr(), &mut bad) } {
            0 => Ok(()),
            error => Err((
                error,
                list.iter().position(|wr| core::ptr::eq(wr, bad)).unwrap(),
            )),
        }
    }

    /// How often the doorbell rang, by its commands in the file.
    pub(super) fn rings(&mut self) -> u64 {
        const COMMAND: usize = size_of::<ib_uverbs_cmd_hdr>() + size_of::<ib_uverbs_post_send>();
        self.file.stream_position().unwrap() / COMMAND as u64
    }
}

impl Program {
    /// Closes the device. Objects that are left can only be destroyed.
    pub(super) fn close(&mut self) {
        if core::mem::take(&mut self.is_open) {
            // SAFETY: The context is valid, and not used any more.
            unsafe { self.ops.free_context.unwrap()(self.context) };
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Objects are leaked.
        self.close();
    }
}
