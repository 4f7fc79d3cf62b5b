// SPDX-License-Identifier: GPL-2.0

//! The states of TCP.

use crate::kapi::bindings;
use kernel::ffi;

/// The state of a connection (RFC 9293, 3.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TcpState {
    Established,
    SynSent,
    SynRecv,
    FinWait1,
    FinWait2,
    TimeWait,
    Close,
    CloseWait,
    LastAck,
    Listen,
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
    pub(crate) fn is_open(self) -> bool {
        matches!(self, TcpState::Established | TcpState::CloseWait)
    }
}
