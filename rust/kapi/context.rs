// SPDX-License-Identifier: GPL-2.0

//! Where and when code runs.

use crate::kapi::bindings;
use kernel::{
    task::might_sleep,
    time::Jiffies, //
};

/// The CPU this runs on, or ran on a moment ago.
pub(crate) fn cpu() -> u32 {
    // SAFETY: Always safe to call.
    unsafe { bindings::siw_helper_cpu() }
}

/// Lets others run. May sleep.
pub(crate) fn cond_resched() {
    might_sleep();
    // SAFETY: Sleeping is allowed here, or `might_sleep()` would have told.
    unsafe { bindings::siw_helper_cond_resched() }
}

/// The tick counter; wraps.
pub(crate) fn jiffies() -> Jiffies {
    // SAFETY: Always safe to call.
    unsafe { bindings::siw_helper_jiffies() }
}

/// Sleeps for at least that long.
pub(crate) fn msleep(ms: u32) {
    might_sleep();
    // SAFETY: Sleeping is allowed here, or `might_sleep()` would have told.
    unsafe { bindings::msleep(ms) }
}
