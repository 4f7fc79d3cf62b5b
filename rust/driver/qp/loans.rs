// SPDX-License-Identifier: GPL-2.0

//! The memory of messages that are sent by reference: its loan, which ends with the mark
//! (`soft::tcp::Mark`), and its recall.

use super::{
    end::Cause,
    releases::Releases,
    sgl::MAX_SGE,
    state::Phase,
    Qp, //
};
use crate::{
    cm::Teardown,
    tpt::lent::Lent,
    QpObj, //
};
use base::{
    errno,
    sync::SpinLockIrq, //
};
use core::ptr;
use kernel::{
    alloc::flags::{
        GFP_ATOMIC,
        __GFP_NOWARN, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use soft::tcp::{
    Mark,
    Marker,
    OnRelease, //
};

/// The memory that is lent to one message.
pub(super) struct Loan {
    parts: [Option<Arc<Lent>>; MAX_SGE],
    /// It has been given back.
    over: Atomic<bool>,
    /// Told when it is given back.
    releases: Option<Arc<Releases>>,
}

impl Loan {
    /// A loan of nothing.
    pub(super) fn new() -> Self {
        Self {
            parts: [const { None }; MAX_SGE],
            over: Atomic::new(false),
            releases: None,
        }
    }

    /// Adds memory that was lent. There are no more parts than elements in a list.
    pub(super) fn add(&mut self, lent: Arc<Lent>) {
        match self.parts.iter_mut().find(|part| part.is_none()) {
            Some(part) => *part = Some(lent),
            None => lent.give_back(),
        }
    }

    fn give_back(&self) {
        if !self.over.xchg(true, Relaxed) {
            self.parts
                .iter()
                .flatten()
                .for_each(|lent| lent.give_back());
        }
    }

    fn is_of(&self, lent: &Lent) -> bool {
        let mut parts = self.parts.iter().flatten();
        parts.any(|part| ptr::eq(&**part, lent))
    }
}

impl Drop for Loan {
    /// The loan may never have got a mark.
    fn drop(&mut self) {
        self.give_back();
    }
}

impl OnRelease for Loan {
    fn released(&self) {
        self.give_back();
        if let Some(releases) = &self.releases {
            releases.released();
        }
    }
}

/// The memory of a message that is sent by reference.
pub(super) struct ByRef {
    mark: Mark,
    loan: Arc<Loan>,
}

impl ByRef {
    /// Makes it of the loan, with the marker for the message. `None` without memory. Any context.
    pub(super) fn new(
        qp: &QpObj,
        mut loan: Loan,
        releases: Option<&Arc<Releases>>,
    ) -> Option<(Self, Marker)> {
        loan.releases = releases.cloned();
        let loan = Arc::new(loan, GFP_ATOMIC | __GFP_NOWARN).ok()?;
        let user = qp.dev.shared.sockets.clone();
        let (mark, marker) = Mark::new(user, Some(loan.clone())).ok()?;
        Some((Self { mark, loan }, marker))
    }

    /// Whether TCP, a queue or a device still refers to the memory.
    pub(super) fn is_held(&self) -> bool {
        !self.mark.is_released()
    }

    fn holds(&self, lent: &Lent) -> bool {
        self.is_held() && self.loan.is_of(lent)
    }
}

/// The Read Responses that were sent by reference, and some whose memory has been given back. No
/// completion waits for them.
#[pin_data]
pub(super) struct Responses {
    #[pin]
    sent: SpinLockIrq<KVec<ByRef>>,
}

impl Responses {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            sent <- ranked_spinlock!(Rank::Responses, KVec::new()),
        })
    }

    /// Adds one, before TCP gets any of it. Any context.
    pub(super) fn add(&self, by_ref: ByRef) -> Result {
        let mut sent = self.sent.lock();
        // TCP's buffer has room for few that are as large.
        sent.retain(|by_ref| by_ref.is_held());
        Ok(sent.push(by_ref, GFP_ATOMIC | __GFP_NOWARN)?)
    }

    /// Forgets them. Their connection has ended.
    pub(super) fn clear(&self) {
        let sent = core::mem::replace(&mut *self.sent.lock(), KVec::new());
        drop(sent);
    }
}

impl Qp {
    /// True if a message of the stream still refers to the memory. Process context.
    fn borrows(self: &QpObj, lent: &Lent) -> bool {
        // Before any lock of the data path: most queue pairs are of others.
        if self.pd != lent.pd {
            return false;
        }
        let stream = &self.stream;
        stream.completions.any_by_ref(|by_ref| by_ref.holds(lent))
            || stream
                .responses
                .sent
                .lock()
                .iter()
                .any(|by_ref| by_ref.holds(lent))
    }

    /// Begins the end of the program, which is exiting, if a message still refers to the memory and
    /// that has not begun. Process context.
    pub(crate) fn end_borrower(self: &QpObj, lent: &Lent) {
        if self.phase() < Phase::Terminating && self.borrows(lent) {
            self.end_program();
        }
    }

    /// Resets the connection if a message of it still refers to the memory: TCP sends nothing of it
    /// any more after the return. Sleeps, but not for the network.
    pub(crate) fn call_in(self: &QpObj, lent: &Lent) {
        if !self.borrows(lent) {
            return;
        }
        let cause = errno::econnaborted();
        self.fail(Cause::Lost(cause));
        let link = self.link.lock().clone();
        if let Some(ep) = link {
            // Its end may have begun earlier, with time for the peer.
            ep.request_teardown(Teardown::Abort(cause));
            ep.socket().abort(cause);
        }
    }
}
