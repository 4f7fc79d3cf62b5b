// SPDX-License-Identifier: GPL-2.0

//! Error codes that the kernel crate has no constants for.

use crate::bindings;
use kernel::prelude::*;

macro_rules! codes {
    ($($name:ident = $code:ident, $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub fn $name() -> Error {
                Error::from_errno((bindings::$code as i32).wrapping_neg())
            }
        )*
    };
}

codes! {
    eacces = EACCES, "Permission denied.";
    eaddrinuse = EADDRINUSE, "The port is taken.";
    eaddrnotavail = EADDRNOTAVAIL, "Not an address of this host.";
    eafnosupport = EAFNOSUPPORT, "Not an address of this family.";
    econnaborted = ECONNABORTED, "Connection given up by this side.";
    econnrefused = ECONNREFUSED, "Connection refused.";
    econnreset = ECONNRESET, "Connection reset by the peer.";
    ehostunreach = EHOSTUNREACH, "No way to the host.";
    enetunreach = ENETUNREACH, "No way to the network.";
    enotconn = ENOTCONN, "Not connected.";
    eopnotsupp = EOPNOTSUPP, "Not supported.";
    epipe = EPIPE, "Connection reset by the peer, which had closed it.";
    eproto = EPROTO, "Protocol error.";
}
