// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Critical sections that last from one call of a program to another.

use std::sync::{
    Condvar,
    Mutex,
    MutexGuard,
    PoisonError, //
};

/// Something that one user at a time has: for a moment, or from [`Self::take`] to [`Self::give`],
/// which may be in different threads.
///
/// A guard of a mutex cannot last from call to call: it belongs to its thread.
pub(super) struct Turn<T> {
    state: Mutex<State<T>>,
    given: Condvar,
}

struct State<T> {
    /// `None` while somebody has taken it.
    it: Option<T>,
    /// The number of threads that wait for it.
    waiting: usize,
}

impl<T> Turn<T> {
    pub(super) fn new(it: T) -> Self {
        let state = State {
            it: Some(it),
            waiting: 0,
        };
        Self {
            state: Mutex::new(state),
            given: Condvar::new(),
        }
    }

    /// Nothing panics under the lock, so it is never poisoned.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until somebody gives it back.
    fn wait<'a>(&self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        state.waiting = state.waiting.saturating_add(1);
        let woken = self.given.wait(state);
        let mut state = woken.unwrap_or_else(PoisonError::into_inner);
        state.waiting = state.waiting.saturating_sub(1);
        state
    }

    /// Uses it for the time of the call.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.lock();
        loop {
            if let Some(it) = &mut state.it {
                return f(it);
            }
            state = self.wait(state);
        }
    }

    /// Takes it away.
    pub(super) fn take(&self) -> T {
        let mut state = self.lock();
        loop {
            if let Some(it) = state.it.take() {
                return it;
            }
            state = self.wait(state);
        }
    }

    /// Gives it back.
    pub(super) fn give(&self, it: T) {
        let mut state = self.lock();
        state.it = Some(it);
        // Without waiters this saves a system call.
        if state.waiting != 0 {
            // Whoever only uses it for a moment wakes nobody afterwards, so wake all.
            self.given.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::mpsc,
        thread, //
    };

    #[test]
    fn one_at_a_time() {
        let turn = Turn::new(0u32);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let mut n = turn.take();
                        n += 1;
                        turn.give(n);
                        turn.with(|n| *n += 1);
                    }
                });
            }
        });
        assert_eq!(turn.take(), 8000);
    }

    #[test]
    fn another_thread_may_give_it_back() {
        let turn = Turn::new(1);
        let (send, receive) = mpsc::channel();
        let taken = turn.take();
        thread::scope(|scope| {
            let turn = &turn;
            scope.spawn(move || send.send(turn.with(|it| *it)));
            assert!(receive.try_recv().is_err());
            scope.spawn(move || turn.give(taken + 1));
            assert_eq!(receive.recv(), Ok(2));
        });
    }
}
