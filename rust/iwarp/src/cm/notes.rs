// SPDX-License-Identifier: GPL-2.0

//! Notes from any context about the end of a connection: how it has to end, and why.

/// How a connection has to end, in rising strength. Of two requests the stronger wins.
///
/// `E` is an error of the host. Without one, `Teardown` says only how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Teardown<E = ()> {
    /// SQD, `rdma_disconnect`: FIN, and time for all that was sent to arrive.
    Graceful,
    /// ERR, QP destroyed, FIN of the peer: FIN, and a short time for what was sent.
    Local,
    /// The QP has a Terminate to send.
    Terminate,
    /// RST at once. The error is the status of the last event.
    Abort(E),
}

impl<E> Teardown<E> {
    fn bare(&self) -> Teardown {
        match self {
            Self::Graceful => Teardown::Graceful,
            Self::Local => Teardown::Local,
            Self::Terminate => Teardown::Terminate,
            Self::Abort(_) => Teardown::Abort(()),
        }
    }
}

/// Why a connection has failed: the status of the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause<E> {
    /// A deadline has passed (`ETIMEDOUT`).
    TimedOut,
    /// TCP has lost the connection (`ECONNRESET`).
    Reset,
    /// This side has given it up (`ECONNABORTED`).
    Aborted,
    /// The peer's ULP has rejected the request (`ECONNREFUSED`).
    Rejected,
    /// The peer has broken the protocol, or a Terminate ends the stream (`EPROTO`).
    Protocol,
    /// An error of the host.
    Host(E),
}

/// What has been noted about the end of one connection. The host guards it with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notes<E> {
    how: Option<Teardown>,
    cause: Option<Cause<E>>,
    vain: bool,
}

impl<E: Copy> Notes<E> {
    /// Nothing is noted.
    pub const fn new() -> Self {
        Self {
            how: None,
            cause: None,
            vain: false,
        }
    }

    /// Asks for the end of the connection.
    pub fn raise(&mut self, how: Teardown<E>) {
        if let Teardown::Abort(e) = how {
            self.note(Cause::Host(e));
        }
        self.ask(how.bare());
    }

    /// Asks for the end of the connection without a reason.
    pub fn ask(&mut self, how: Teardown) {
        // `None` is less than any of them.
        self.how = self.how.max(Some(how));
    }

    /// Keeps the first reason, and returns whether this is it. A rejection replaces it: that is the
    /// peer's answer, whatever has become of the connection since.
    pub fn note(&mut self, cause: Cause<E>) -> bool {
        let first = self.cause.is_none();
        if first || matches!(cause, Cause::Rejected) {
            self.cause = Some(cause);
        }
        first
    }

    /// Notes that the QP has something to send, but its peer is gone.
    pub fn send_in_vain(&mut self) {
        self.vain = true;
    }

    /// The strongest request to end the connection.
    pub const fn asked(&self) -> Option<Teardown> {
        self.how
    }

    /// The first reason.
    pub const fn cause(&self) -> Option<Cause<E>> {
        self.cause
    }

    /// Whether the QP has something to send, but its peer is gone.
    pub const fn vain(&self) -> bool {
        self.vain
    }

    /// Status of the last event.
    pub const fn status(&self) -> Result<(), Cause<E>> {
        match (self.cause, self.how) {
            (Some(cause), _) => Err(cause),
            (None, Some(Teardown::Terminate)) => Err(Cause::Protocol),
            _ => Ok(()),
        }
    }
}

impl<E: Copy> Default for Notes<E> {
    fn default() -> Self {
        Self::new()
    }
}
