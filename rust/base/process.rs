// SPDX-License-Identifier: GPL-2.0

//! The process that makes a system call.
//!
//! C header: [`include/linux/pid.h`](srctree/include/linux/pid.h)

use crate::bindings;
use core::ptr::NonNull;

/// A process, with all its threads. Unlike its number, which may be reused when the process is
/// gone, this identifies no other process.
///
/// # Invariants
///
/// The pointer is a thread group's `struct pid`, and the reference is counted.
pub struct Process(NonNull<bindings::pid>);

/// Names a process. No other has the same name while there is a [`Process`] of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(usize);

// SAFETY: A `struct pid` may be used and released from any thread.
unsafe impl Send for Process {}
// SAFETY: Nothing of a `struct pid` changes that is used here.
unsafe impl Sync for Process {}

impl Process {
    /// The current process. Process context.
    pub fn current() -> Self {
        // SAFETY: Always safe to call.
        let pid = unsafe { bindings::get_process() };
        // INVARIANT: Just counted.
        // SAFETY: Whoever runs is of a thread group.
        Self(unsafe { NonNull::new_unchecked(pid) })
    }

    /// Names it.
    pub fn id(&self) -> ProcessId {
        ProcessId(self.0.as_ptr() as usize)
    }

    /// Whether it is the current process. Process context.
    pub fn is_current(&self) -> bool {
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::is_process(self.0.as_ptr()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: Counted by the type invariants.
        unsafe { bindings::put_pid(self.0.as_ptr()) };
    }
}
