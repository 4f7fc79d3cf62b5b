// SPDX-License-Identifier: GPL-2.0

//! Error codes that `kernel::error::code` lacks.

use kernel::{
    error::Error,
    ffi, //
};

use crate::kapi::bindings;

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $code:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name() -> Error {
            Error::from_errno(-(bindings::$code as ffi::c_int))
        }
    )*};
}

errnos! {
    /// Operation not supported.
    eopnotsupp = EOPNOTSUPP;
    /// Address family not supported.
    eafnosupport = EAFNOSUPPORT;
    /// Address not available.
    eaddrnotavail = EADDRNOTAVAIL;
    /// Connection reset by peer.
    econnreset = ECONNRESET;
    /// Connection refused; what the iWARP core takes for a reject by the consumer.
    econnrefused = ECONNREFUSED;
    /// Transport endpoint is not connected.
    enotconn = ENOTCONN;
    /// Protocol error.
    eproto = EPROTO;
}
