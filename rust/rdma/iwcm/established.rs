// SPDX-License-Identifier: GPL-2.0

//! The wait for the ESTABLISHED event of a connection that a program accepts.

use core::ptr::null_mut;

use kernel::{
    ffi,
    prelude::*,
    sync::{
        Arc,
        Completion, //
    }, //
};

use base::{
    bindings::{
        self,
        iw_cm_id, //
    },
    context, //
};

/// Waits until the core takes the ESTABLISHED event of an identifier that a user has accepted.
///
/// Until a work item of the core has done so, it lets the identifier be accepted or rejected once
/// more (`iw_cm_accept`: `CONN_RECV`), loses the reference to the QP, and answers the event with
/// `BUG()`. Kernel consumers do no such thing; what keeps a user off is `ucma`, which lets one call
/// for an identifier in at a time: `accept` may not return earlier.
///
/// The core calls the consumer next, so this handler takes the consumer's place for that call. The
/// consumer then waits for a mutex that `ucma` holds meanwhile. This is no deadlock: nothing else
/// that is queued ahead needs this `accept` to be over.
#[pin_data]
pub(super) struct Established {
    handler: bindings::iw_cm_handler,
    #[pin]
    seen: Completion,
}

impl Established {
    /// Expects the event. Called before it is raised. Returns `None` if there is no need to wait.
    ///
    /// # Safety
    ///
    /// `id` is being accepted. Then [`Self::wait`] or [`Self::cancel`] follows.
    pub(super) unsafe fn expect(id: *mut iw_cm_id) -> Result<Option<Arc<Self>>> {
        // Only threads of the kernel accept in the core's work item.
        if context::in_kthread() {
            return Ok(None);
        }
        // SAFETY: By the requirements of this function. The core is not calling it now: the event
        // of the connect request is over, and `ESTABLISHED` to come.
        let handler = unsafe { (*id).cm_handler };
        let this = Arc::pin_init(
            pin_init!(Self {
                handler,
                seen <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: As above; the field is ours, and was read before.
        unsafe { (*id).provider_data = Arc::into_raw(this.clone()).cast_mut().cast() };
        // SAFETY: The core reads the handler for the next event, which has not been raised yet.
        unsafe { (*id).cm_handler = Some(established) };
        Ok(Some(this))
    }

    /// Waits for the event, which has been raised. May sleep.
    pub(super) fn wait(&self) {
        self.seen.wait_for_completion();
    }

    /// Stops expecting the event.
    ///
    /// # Safety
    ///
    /// As for `expect`, with the same `id`, and the event was not raised.
    pub(super) unsafe fn cancel(&self, id: *mut iw_cm_id) {
        // SAFETY: By the requirements of this function.
        drop(unsafe { Self::take(id) });
    }

    /// Restores the consumer's handler.
    ///
    /// # Safety
    ///
    /// `expect` has been called for `id`, and this has not.
    unsafe fn take(id: *mut iw_cm_id) -> Arc<Self> {
        // SAFETY: By the requirements of this function; `expect` set it.
        let data = unsafe { core::mem::replace(&mut (*id).provider_data, null_mut()) };
        // SAFETY: As above; the reference is taken over.
        let this = unsafe { Arc::from_raw(data.cast::<Self>()) };
        // SAFETY: The core calls no handler now: either `established` is being called, or there is
        // no event.
        unsafe { (*id).cm_handler = this.handler };
        this
    }
}

/// The handler while [`Established`] is expected.
///
/// # Safety
///
/// Called by the core, with the first event of an identifier `expect` was called for.
unsafe extern "C" fn established(
    id: *mut iw_cm_id,
    event: *mut bindings::iw_cm_event,
) -> ffi::c_int {
    // SAFETY: By the requirements of this function. Events come one after the other.
    let this = unsafe { Established::take(id) };
    this.seen.complete_all();
    match this.handler {
        // SAFETY: The core would have called it with the same arguments.
        Some(handler) => unsafe { handler(id, event) },
        None => 0,
    }
}
