// SPDX-License-Identifier: GPL-2.0

//! Timers with a resolution of less than a tick.
//!
//! As those of [`kernel::time::hrtimer`], but started any number of times by whoever shares them,
//! and stopped when they are dropped.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use crate::kapi::bindings;
use core::pin::Pin;
use kernel::{
    impl_has_hr_timer,
    prelude::*,
    time::{
        hrtimer::{
            HasHrTimer,
            HrTimer,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerRestart,
            RelativeSoftMode, //
        },
        Delta,
        Monotonic, //
    },
};

/// What a timer is for.
pub(crate) trait OnTimer: Send + Sync + 'static {
    /// The time has come. In softirq: must not sleep, nor drop the timer.
    fn on_timer(&self);
}

/// A timer, and what it is for.
#[pin_data(PinnedDrop)]
pub(crate) struct Timer<T: OnTimer> {
    #[pin]
    timer: HrTimer<Self>,
    #[pin]
    target: T,
}

impl_has_hr_timer! {
    impl{T: OnTimer} HasHrTimer<Self> for Timer<T> {
        mode: RelativeSoftMode<Monotonic>, field: self.timer
    }
}

impl<T: OnTimer> HrTimerCallback for Timer<T> {
    type Pointer<'a> = Pin<&'a Self>;

    fn run(this: Pin<&Self>, _ctx: HrTimerCallbackContext<'_, Self>) -> HrTimerRestart {
        this.get_ref().target.on_timer();
        HrTimerRestart::NoRestart
    }
}

impl<T: OnTimer> Timer<T> {
    /// A timer that has not been started.
    pub(crate) fn new(target: impl PinInit<T>) -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- HrTimer::new(),
            target <- target,
        })
    }

    /// What it is for.
    pub(crate) fn target(&self) -> &T {
        &self.target
    }

    /// Has [`OnTimer::on_timer`] called once, in `nanos` nanoseconds. If that is still to come it
    /// is put off. Any context but a hard interrupt.
    pub(crate) fn start(&self, nanos: u32) {
        let expires = Delta::from_nanos(i64::from(nanos));
        // SAFETY: Valid. It is pinned, and when it is dropped the timer is stopped.
        unsafe { <Self as HasHrTimer<Self>>::start(self, expires) };
    }
}

#[pinned_drop]
impl<T: OnTimer> PinnedDrop for Timer<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Valid.
        let timer = unsafe { Self::c_timer_ptr(&*self) };
        // SAFETY: The timer was initialised with `self`. This waits for the callback to return.
        unsafe { bindings::hrtimer_cancel(timer.cast_mut()) };
    }
}
