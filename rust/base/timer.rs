// SPDX-License-Identifier: GPL-2.0

//! Timers with a resolution of less than a tick.
//!
//! Unlike those of [`kernel::time::hrtimer`], they can be started any number of times through a
//! shared reference, and are stopped when they are dropped.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use crate::bindings;
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
    }, //
};

/// The handler of a timer.
pub trait OnTimer: Send + Sync + 'static {
    /// The timer has expired. Called in softirq: must neither sleep nor drop the timer.
    fn on_timer(&self);
}

/// A timer and its handler.
#[pin_data(PinnedDrop)]
pub struct Timer<T: OnTimer> {
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
    pub fn new(target: impl PinInit<T>) -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- HrTimer::new(),
            target <- target,
        })
    }

    /// The handler.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// Starts the timer: [`OnTimer::on_timer`] is called once, in `nanos` nanoseconds. A timer that
    /// is running is restarted. Any context but a hard interrupt.
    pub fn start(&self, nanos: u32) {
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
