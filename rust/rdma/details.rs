// SPDX-License-Identifier: GPL-2.0

//! The provider's part of the core's description of an object, for `rdma resource show -dd`.

use core::{
    fmt::Write,
    marker::PhantomData, //
};

use kernel::{
    error::to_result,
    fmt,
    prelude::*, //
};

use crate::text::Clipped;
use base::bindings::{
    self,
    sk_buff, //
};

/// The provider's part of a description.
///
/// # Examples
///
/// ```ignore
/// // `rdma resource show cq -dd` prints `posted 17 overrun 0`.
/// fn describe(cq: &Cq<MyDriver>, out: &mut Details<'_>) -> Result {
///     out.number(c"posted", cq.posted.read_once())?;
///     out.number(c"overrun", cq.overrun().into())
/// }
/// ```
///
/// # Invariants
///
/// `msg` is a netlink message in which the provider's table is open.
pub struct Details<'a> {
    msg: *mut sk_buff,
    _p: PhantomData<&'a mut sk_buff>,
}

impl Details<'_> {
    /// Lets `describe` fill in the provider's table of a message. If the message is too small, the
    /// table is left out.
    ///
    /// # Safety
    ///
    /// `msg` is a netlink message that the caller is writing.
    pub(super) unsafe fn put(
        msg: *mut sk_buff,
        describe: impl FnOnce(&mut Details<'_>) -> Result,
    ) -> Result {
        // SAFETY: By the requirements of this function.
        let table = unsafe { bindings::nla_nest_driver(msg) };
        if table.is_null() {
            return Err(EMSGSIZE);
        }
        // INVARIANT: Opened above.
        let result = describe(&mut Details {
            msg,
            _p: PhantomData,
        });
        match result {
            // SAFETY: Opened above.
            Ok(()) => unsafe { bindings::nla_nest_end(msg, table) },
            // SAFETY: Opened above, and nothing has closed it.
            Err(_) => unsafe { bindings::nla_nest_cancel(msg, table) },
        }
        result
    }

    /// Adds a number.
    pub fn number(&mut self, name: &CStr, value: u64) -> Result {
        // SAFETY: The message is valid by the type invariants, and the name is copied.
        to_result(unsafe { bindings::rdma_nl_put_driver_u64(self.msg, name.as_char_ptr(), value) })
    }

    /// Adds a number, shown in hexadecimal.
    pub fn hex(&mut self, name: &CStr, value: u64) -> Result {
        // SAFETY: The message is valid by the type invariants, and the name is copied.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u64_hex(self.msg, name.as_char_ptr(), value)
        })
    }

    /// Adds a text, truncated after 63 bytes.
    pub fn text(&mut self, name: &CStr, value: fmt::Arguments<'_>) -> Result {
        let mut text = [0u8; 64];
        let room = text.len() - 1;
        // An error means that the text is truncated. The last byte stays zero.
        let _ = Clipped::new(&mut text[..room]).write_fmt(value);
        // SAFETY: The message is valid by the type invariants; both texts end with a zero and are
        // copied.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_string(self.msg, name.as_char_ptr(), text.as_ptr().cast())
        })
    }
}
