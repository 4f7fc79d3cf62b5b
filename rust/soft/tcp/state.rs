// SPDX-License-Identifier: GPL-2.0

//! The states of TCP.

use base::bindings;
use kernel::ffi;

/// The state of a connection (RFC 9293, 3.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpState {
    /// ESTABLISHED.
    Established,
    /// SYN-SENT.
    SynSent,
    /// SYN-RECEIVED.
    SynRecv,
    /// FIN-WAIT-1.
    FinWait1,
    /// FIN-WAIT-2.
    FinWait2,
    /// TIME-WAIT.
    TimeWait,
    /// CLOSED.
    Close,
    /// CLOSE-WAIT.
    CloseWait,
    /// LAST-ACK.
    LastAck,
    /// LISTEN.
    Listen,
    /// CLOSING.
    Closing,
}

impl TcpState {
    pub(super) fn from_raw(state: ffi::c_int) -> Self {
        match state as u32 {
            bindings::TCP_ESTABLISHED => TcpState::Established,
            bindings::TCP_SYN_SENT => TcpState::SynSent,
            bindings::TCP_SYN_RECV | bindings::TCP_NEW_SYN_RECV => TcpState::SynRecv,
            bindings::TCP_FIN_WAIT1 => TcpState::FinWait1,
            bindings::TCP_FIN_WAIT2 => TcpState::FinWait2,
            bindings::TCP_TIME_WAIT => TcpState::TimeWait,
            bindings::TCP_CLOSE_WAIT => TcpState::CloseWait,
            bindings::TCP_LAST_ACK => TcpState::LastAck,
            bindings::TCP_LISTEN => TcpState::Listen,
            bindings::TCP_CLOSING => TcpState::Closing,
            _ => TcpState::Close,
        }
    }

    /// Whether data may be sent.
    pub fn is_open(self) -> bool {
        matches!(self, TcpState::Established | TcpState::CloseWait)
    }
}
