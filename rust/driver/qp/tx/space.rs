// SPDX-License-Identifier: GPL-2.0

//! The space in TCP's send buffer.

use soft::tcp::SockView;

/// Bytes that TCP takes at present: none, unless `least` or [enough](is_enough) are free. If none,
/// asks for `write_space`.
pub(super) fn send_space(sock: &SockView, least: usize) -> usize {
    let free = || match sock.space() {
        space if space >= least || is_enough(sock) => space,
        _ => 0,
    };
    match free() {
        0 => {
            sock.set_nospace();
            free()
        }
        space => space,
    }
}

/// Whether TCP has enough space to make a turn worthwhile. A turn for each acknowledged segment
/// would send little. The socket's flag stays set until a good part of the buffer is free, so the
/// next ACK asks again.
pub(super) fn is_enough(sk: &SockView) -> bool {
    sk.space() >= sk.sndbuf() / 4 || sk.wmem_queued() == 0
}
