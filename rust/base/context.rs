// SPDX-License-Identifier: GPL-2.0

//! Where and when code runs.

use crate::bindings;
use kernel::{
    task::might_sleep,
    time::{
        msecs_to_jiffies,
        Jiffies, //
    }, //
};

/// The number of the current CPU. The caller may have been migrated on return.
pub fn cpu() -> u32 {
    // SAFETY: Always safe to call.
    unsafe { bindings::raw_smp_processor_id() }
}

/// Whether softirqs cannot run on this CPU, because one does or the caller has disabled them.
pub fn in_softirq() -> bool {
    // SAFETY: Always safe to call.
    unsafe { bindings::in_softirq() }
}

/// Whether the current task is a kernel thread.
pub fn in_kthread() -> bool {
    // SAFETY: Always safe to call.
    unsafe { bindings::is_kthread() }
}

/// Whether the current task is exiting. The kernel may be closing its files.
pub fn exiting() -> bool {
    // SAFETY: Always safe to call.
    unsafe { bindings::is_exiting() }
}

/// Waits until every task that is preempted now has given up the CPU voluntarily, or has returned
/// to user space. Sleeps.
///
/// On a kernel with preemption this needs `CONFIG_TASKS_RCU`, which kprobes, tracing and BPF
/// select.
pub fn synchronize_tasks() {
    might_sleep();
    // SAFETY: Sleeping is allowed here, or `might_sleep()` would have warned.
    unsafe { bindings::synchronize_rcu_tasks() }
}

/// Lets other tasks run, and lets [`synchronize_tasks`] make progress. May sleep.
pub fn cond_resched() {
    might_sleep();
    // SAFETY: Sleeping is allowed here, or `might_sleep()` would have warned.
    unsafe { bindings::cond_resched_tasks_rcu_qs() }
}

/// The tick counter; wraps.
pub fn jiffies() -> Jiffies {
    // SAFETY: Always safe to call.
    unsafe { bindings::jiffies() }
}

/// Sleeps for at least `ms` milliseconds.
pub fn msleep(ms: u32) {
    might_sleep();
    // SAFETY: Sleeping is allowed here, or `might_sleep()` would have warned.
    unsafe { bindings::msleep(ms) }
}

/// Polls `done` with pauses of `pause_ms`, for at most `ms`, until it returns true. Returns whether
/// it did. May sleep.
///
/// The limit is a time and not a number of rounds, because a sleep of 1 ms takes two ticks.
pub fn poll(ms: u32, pause_ms: u32, mut done: impl FnMut() -> bool) -> bool {
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
