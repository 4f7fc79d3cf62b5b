// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Memory that is shared with the kernel, and the doorbell.

use super::{
    bindings::{
        self,
        ib_uverbs_cmd_hdr,
        ib_uverbs_post_send,
        ib_uverbs_post_send_resp,
        ibv_qp, //
    },
    errno::Errno,
    private, //
};
use core::{
    ffi::{
        c_int,
        c_void, //
    },
    ops::Deref,
    ptr::{
        null_mut,
        NonNull, //
    },
    slice,
    sync::atomic::{
        AtomicBool,
        AtomicU64,
        Ordering::Relaxed, //
    }, //
};

/// A queue that the driver offers to map. The numbers are those of its response, unchecked.
pub(crate) struct Offer {
    /// The device's descriptor.
    pub(super) fd: c_int,
    /// The offset to map.
    pub(super) key: u64,
    /// Elements of the queue.
    pub(crate) entries: u32,
}

/// Mapped memory, as 64-bit words. The kernel may write to it at any time, whatever the protocol
/// says, so all accesses are atomic.
///
/// # Invariants
///
/// `words` points to `len` words that are mapped for reading and writing, until this is dropped.
pub(crate) struct Shared {
    words: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: All accesses are atomic, and any thread may unmap memory.
unsafe impl Send for Shared {}

// SAFETY: All accesses are atomic.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps the first `len` words of what is offered.
    pub(crate) fn map(offer: &Offer, len: usize) -> Result<Self, Errno> {
        let bytes = len.checked_mul(size_of::<u64>()).ok_or(Errno::EPROTO)?;
        let offset = offer.key.try_into().map_err(|_| Errno::EPROTO)?;
        // SAFETY: The kernel chooses an address that is not in use. It refuses a wrong offset, and
        // a length of zero.
        let addr = unsafe {
            bindings::mmap(
                null_mut(),
                bytes,
                (bindings::PROT_READ | bindings::PROT_WRITE) as c_int,
                bindings::MAP_SHARED as c_int,
                offer.fd,
                offset,
            )
        };
        // `MAP_FAILED` is -1. A page at address 0 cannot be had without asking for it.
        if addr.addr() == usize::MAX {
            return Err(Errno::last());
        }
        // INVARIANT: As just mapped.
        Ok(Self {
            words: NonNull::new(addr.cast()).ok_or(Errno::EPROTO)?,
            len,
        })
    }
}

impl Deref for Shared {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: Mapped by the type invariants, and aligned to a page. The kernel accesses aligned
        // parts of a word, which x86-64 performs as atomically as whole words.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It was checked when it was mapped.
        let bytes = self.len.saturating_mul(size_of::<u64>());
        // SAFETY: Mapped by the type invariants; nobody has a reference any more. The result does
        // not matter.
        unsafe { bindings::munmap(self.words.as_ptr().cast(), bytes) };
    }
}

/// What tells the driver that a send queue has new elements.
///
/// # Invariants
///
/// `qp` is the queue pair that this belongs to, which is valid until this is dropped.
pub(crate) struct Doorbell {
    /// The device's descriptor.
    fd: c_int,
    /// The handle of the queue pair.
    handle: u32,
    qp: NonNull<ibv_qp>,
    /// The kernel takes no commands that are written here, see [`Self::ring`].
    by_ioctl: AtomicBool,
}

// SAFETY: Any thread may call libibverbs for a queue pair.
unsafe impl Send for Doorbell {}

// SAFETY: Any threads may call libibverbs for a queue pair at once.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// The doorbell of a queue pair that the kernel has made.
    ///
    /// # Safety
    ///
    /// It is dropped before the queue pair is freed.
    pub(super) unsafe fn new(fd: c_int, qp: NonNull<ibv_qp>, imported: bool) -> Self {
        // INVARIANT: By the requirements of this function.
        Self {
            fd,
            // SAFETY: It is valid by the requirements of this function.
            handle: unsafe { qp.as_ref() }.handle,
            qp,
            by_ioctl: AtomicBool::new(imported),
        }
    }

    /// Rings it: the command `POST_SEND` of uverbs without a work request.
    ///
    /// The kernel takes written commands only with the credentials that opened the device
    /// (`ib_safe_file_access`): not in another process, and not after `setuid()`, `setfsuid()` or a
    /// dropped capability. It refuses them with `EACCES` and has done nothing by then. `ioctl()` is
    /// for everyone who has the device.
    pub(crate) fn ring(&self) -> Result<(), Errno> {
        if !self.by_ioctl.load(Relaxed) {
            match self.write() {
                Err(Errno::EACCES) => self.by_ioctl.store(true, Relaxed),
                result => return result,
            }
        }
        let mut bad = null_mut();
        // SAFETY: The queue pair is valid by the type invariants. There is no work request.
        Errno::check(unsafe { private::ibv_cmd_post_send(self.qp.as_ptr(), null_mut(), &mut bad) })
    }

    /// Writes the command, which costs less than libibverbs' `ioctl()`.
    fn write(&self) -> Result<(), Errno> {
        #[repr(C)]
        struct Command {
            header: ib_uverbs_cmd_hdr,
            core: ib_uverbs_post_send,
        }
        const SIZE: usize = size_of::<Command>();
        const IN_WORDS: usize = SIZE / size_of::<u32>();
        const OUT_WORDS: usize = size_of::<ib_uverbs_post_send_resp>() / size_of::<u32>();
        let mut resp = ib_uverbs_post_send_resp { bad_wr: 0 };
        let command = Command {
            header: ib_uverbs_cmd_hdr {
                command: bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND,
                in_words: IN_WORDS as u16,
                out_words: OUT_WORDS as u16,
            },
            core: ib_uverbs_post_send {
                response: (&raw mut resp).expose_provenance() as u64,
                qp_handle: self.handle,
                wr_count: 0,
                sge_count: 0,
                wqe_size: size_of::<bindings::ib_uverbs_send_wr>() as u32,
                ..Default::default()
            },
        };
        let command: *const c_void = (&raw const command).cast();
        // SAFETY: `command` has `SIZE` bytes, and the response that the kernel may write as many as
        // the header says.
        let written = unsafe { bindings::write(self.fd, command, SIZE) };
        match usize::try_from(written) {
            Ok(SIZE) => Ok(()),
            Ok(_) => Err(Errno::EPROTO),
            Err(_) => Err(Errno::last()),
        }
    }
}

#[cfg(any(test, fuzzing))]
impl Offer {
    /// A queue in a file, for tests. The file stays open.
    pub(crate) fn of(file: &impl std::os::fd::AsRawFd, key: u64, entries: u32) -> Self {
        Self {
            fd: file.as_raw_fd(),
            key,
            entries,
        }
    }
}
