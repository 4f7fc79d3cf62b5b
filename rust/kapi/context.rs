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

/// One more than the highest CPU number that can ever be.
pub(crate) fn nr_cpu_ids() -> u32 {
    // SAFETY: Always safe to call.
    unsafe { bindings::siw_helper_nr_cpu_ids() }
}

/// Whether that CPU is there and running.
pub(crate) fn cpu_online(cpu: u32) -> bool {
    // SAFETY: Always safe to call; the helper checks the number.
    unsafe { bindings::siw_helper_cpu_online(cpu) }
}

/// Whether this is process context with softirqs not disabled, as far as the preempt count tells.
pub(crate) fn in_task() -> bool {
    // SAFETY: Always safe to call.
    unsafe { bindings::siw_helper_in_task() }
}

/// Whether this is a softirq handler.
pub(crate) fn in_softirq() -> bool {
    // SAFETY: Always safe to call.
    unsafe { bindings::siw_helper_in_softirq() }
}

/// Whether this is a hard interrupt or NMI handler.
pub(crate) fn in_hardirq() -> bool {
    // SAFETY: Always safe to call.
    unsafe { bindings::siw_helper_in_hardirq() }
}

/// Whether interrupts are off on this CPU.
pub(crate) fn irqs_disabled() -> bool {
    // SAFETY: Always safe to call.
    unsafe { bindings::siw_helper_irqs_disabled() }
}

/// Lets others run. May sleep.
pub(crate) fn cond_resched() {
    might_sleep();
    // SAFETY: Sleeping is allowed here, or `might_sleep()` would have told.
    unsafe { bindings::siw_helper_cond_resched() }
}

/// Tells the CPU that this is a busy-wait loop.
pub(crate) fn cpu_relax() {
    // SAFETY: Always safe to call.
    unsafe { bindings::siw_helper_cpu_relax() }
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
