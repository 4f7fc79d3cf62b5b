// SPDX-License-Identifier: GPL-2.0

//! Where and when code runs.

use crate::kapi::bindings;
use kernel::{
    task::might_sleep,
    time::{
        msecs_to_jiffies,
        Jiffies, //
    },
};

/// The CPU this runs on, or ran on a moment ago.
pub(crate) fn cpu() -> u32 {
    // SAFETY: Always safe to call.
    unsafe { bindings::kapi_cpu() }
}

/// Whether a thread of the kernel runs here, and no system call of a program.
pub(crate) fn in_kthread() -> bool {
    // SAFETY: Always safe to call.
    unsafe { bindings::kapi_kthread() }
}

/// Whether the program that runs here has ended, and its files are being closed.
pub(crate) fn exiting() -> bool {
    // SAFETY: Always safe to call.
    unsafe { bindings::kapi_exiting() }
}

/// Waits until every thread that is preempted now has given up the CPU by itself, or has returned
/// to its program. Sleeps.
///
/// On a kernel with preemption this needs `CONFIG_TASKS_RCU`, which kprobes, tracing and BPF
/// select.
pub(crate) fn synchronize_tasks() {
    might_sleep();
    // SAFETY: Sleeping is allowed here, or `might_sleep()` would have told.
    unsafe { bindings::kapi_synchronize_tasks() }
}

/// Lets others run, and [`synchronize_tasks`] go on. May sleep.
pub(crate) fn cond_resched() {
    might_sleep();
    // SAFETY: Sleeping is allowed here, or `might_sleep()` would have told.
    unsafe { bindings::kapi_cond_resched() }
}

/// The tick counter; wraps.
pub(crate) fn jiffies() -> Jiffies {
    // SAFETY: Always safe to call.
    unsafe { bindings::kapi_jiffies() }
}

/// Sleeps for at least that long.
pub(crate) fn msleep(ms: u32) {
    might_sleep();
    // SAFETY: Sleeping is allowed here, or `might_sleep()` would have told.
    unsafe { bindings::msleep(ms) }
}

/// Asks `done` until it says yes, with pauses of `pause_ms`, for `ms` at the most; returns whether
/// it did. May sleep.
///
/// By the clock and not by rounds: a sleep of 1 ms takes two ticks.
pub(crate) fn poll(ms: u32, pause_ms: u32, mut done: impl FnMut() -> bool) -> bool {
    let (start, limit) = (jiffies(), msecs_to_jiffies(ms));
    loop {
        if done() {
            return true;
        }
        if jiffies().wrapping_sub(start) > limit {
            return false;
        }
        msleep(pause_ms);
    }
}
