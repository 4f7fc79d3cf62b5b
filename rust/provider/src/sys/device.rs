// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Devices and contexts.

use super::{
    abi::feature,
    bindings::{
        self,
        ib_uverbs_ex_query_device_resp,
        ib_uverbs_get_context,
        ib_uverbs_get_context_resp,
        ib_uverbs_query_port,
        ibv_atomic_cap_IBV_ATOMIC_GLOB as ATOMIC_GLOB,
        ibv_context,
        ibv_device,
        ibv_device_attr_ex,
        ibv_odp_caps,
        ibv_odp_transport_cap_bits_IBV_ODP_SUPPORT_ATOMIC as ODP_ATOMIC,
        ibv_port_attr,
        ibv_query_device_ex_input,
        siw_ureq_alloc_ctx,
        siw_uresp_alloc_ctx,
        verbs_context, //
    },
    command::{
        Message,
        Request,
        Response, //
    },
    errno::{
        number,
        object,
        Errno, //
    },
    lid,
    object::{
        free,
        Fresh, //
    },
    ops,
    private::{
        self,
        CommandBuffer,
        Private,
        VerbsDevice, //
    },
    provider::Provider, //
};
use core::{
    ffi::c_int,
    mem::offset_of,
    ptr::null_mut,
    sync::atomic::{
        AtomicUsize,
        Ordering::{
            AcqRel,
            Relaxed, //
        }, //
    },
};
use std::io::Write;

/// The method of uverbs that answers for a context that is open.
const QUERY_CONTEXT: u16 = bindings::uverbs_methods_device_UVERBS_METHOD_QUERY_CONTEXT as u16;
/// The driver's answer to it.
const QUERY_CONTEXT_RESP: u16 =
    bindings::siw_query_context_attrs_SIW_ATTR_QUERY_CONTEXT_RESP as u16;

/// The number by which libibverbs knows the driver.
pub(super) const DRIVER_ID: u32 = bindings::rdma_driver_id_RDMA_DRIVER_SIW;

/// A context, and the number of those who use its memory: the program until it closes the device,
/// and each object.
///
/// A program has to destroy objects first. Python's garbage collector does not (pyverbs), and
/// libibverbs then passes each object to its context, which must not be something else by then.
#[repr(C)]
struct Context {
    verbs: verbs_context,
    users: AtomicUsize,
    /// What library and driver agreed on when it was opened, of [`feature`].
    features: u32,
    /// Another one was opened, maybe by another process.
    imported: bool,
}

/// A use of the memory of a context, which is freed with the last one.
///
/// # Invariants
///
/// It is one of the `users` of the context, which came from `_verbs_init_and_alloc_context`.
pub(super) struct Hold(*mut Context);

impl Hold {
    /// One more use.
    ///
    /// # Safety
    ///
    /// `context` is one of [`alloc_context`], and in use.
    pub(super) unsafe fn new(context: *mut ibv_context) -> Self {
        let context = outer(context);
        // SAFETY: By the requirements of this function. C does not know this field.
        unsafe { &(*context).users }.fetch_add(1, Relaxed);
        // INVARIANT: It was just counted.
        Self(context)
    }

    /// The features that library and driver use in the context, of [`feature`].
    pub(super) fn features(&self) -> u32 {
        // SAFETY: In use by the type invariants. It is not changed any more.
        unsafe { (*self.0).features }
    }

    /// Whether the context is imported.
    pub(super) fn imported(&self) -> bool {
        // SAFETY: In use by the type invariants. It is not changed any more.
        unsafe { (*self.0).imported }
    }

    /// The descriptor of the device.
    pub(super) fn fd(&self) -> c_int {
        // SAFETY: In use by the type invariants. It is not changed any more.
        unsafe { (*self.0).verbs.context.cmd_fd }
    }

    /// Takes over the use of whoever gives up `context`.
    ///
    /// # Safety
    ///
    /// The caller counts as a user, and does not use it any more.
    unsafe fn take_over(context: *mut Context) -> Self {
        // INVARIANT: By the requirements of this function.
        Self(context)
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        // SAFETY: In use by the type invariants. C does not know this field.
        unsafe { &(*self.0).users }.fetch_add(1, Relaxed);
        // INVARIANT: It was just counted.
        Self(self.0)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // SAFETY: In use by the type invariants. C does not know this field.
        let before = unsafe { &(*self.0).users }.fetch_sub(1, AcqRel);
        // What the others did with it comes before it is freed.
        if before == 1 {
            // SAFETY: Allocated with `calloc()`, and nobody uses it any more.
            unsafe { bindings::free(self.0.cast()) };
        }
    }
}

/// The structure that the context of a program is part of.
fn outer(context: *mut ibv_context) -> *mut Context {
    context
        .wrapping_byte_sub(offset_of!(Context, verbs.context))
        .cast()
}

/// `alloc_device`: makes the device, which libibverbs fills in.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_device(_found: Private) -> *mut VerbsDevice {
    object(Fresh::<VerbsDevice, ()>::new().map(|device| device.finish(())))
}

/// `uninit_device`: frees it.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn uninit_device(device: *mut VerbsDevice) {
    // SAFETY: From `alloc_device`; this is its last use.
    unsafe { free::<VerbsDevice, ()>(device) };
}

/// `alloc_context`: opens a device.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_context<V: Provider>(
    device: *mut ibv_device,
    cmd_fd: c_int,
    _private_data: Private,
) -> *mut verbs_context {
    // SAFETY: The device is valid, the descriptor is given up.
    unsafe { make_context::<V>(device, cmd_fd, false) }
}

/// `import_context`: one that is open already, by another descriptor. The descriptor is closed if
/// it fails, too.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn import_context<V: Provider>(
    device: *mut ibv_device,
    cmd_fd: c_int,
) -> *mut verbs_context {
    // SAFETY: The device is valid, the descriptor is given up.
    unsafe { make_context::<V>(device, cmd_fd, true) }
}

/// Makes a context.
///
/// # Safety
///
/// The device is valid, the descriptor is given up.
unsafe fn make_context<V: Provider>(
    device: *mut ibv_device,
    cmd_fd: c_int,
    imported: bool,
) -> *mut verbs_context {
    // SAFETY: By the requirements of this function. The context begins the memory.
    let memory = unsafe {
        private::_verbs_init_and_alloc_context(
            device,
            cmd_fd,
            size_of::<Context>(),
            null_mut(),
            DRIVER_ID,
        )
    };
    if memory.is_null() {
        return null_mut();
    }
    let context: *mut Context = memory.cast();
    let verbs: *mut verbs_context = memory.cast();
    // SAFETY: It was just made, and is zero, for which this is valid.
    unsafe { &(*context).users }.store(1, Relaxed);
    let agreed = if imported {
        // SAFETY: It was just made.
        unsafe { query_context(verbs, V::WANT) }
    } else {
        // SAFETY: It was just made.
        unsafe { get_context(verbs, V::WANT) }
    };
    let features = match agreed {
        Ok(features) => features,
        Err(error) => {
            // SAFETY: It was just made, and nobody else has it.
            unsafe { close(context) };
            return object(Err(error));
        }
    };
    // SAFETY: Nobody else has it yet.
    unsafe { (*context).features = features };
    // SAFETY: Nobody else has it yet.
    unsafe { (*context).imported = imported };
    let ops = if features & feature::WINDOWS != 0 {
        const { &ops::context_ops_with_windows::<V>() }
    } else {
        const { &ops::context_ops::<V>() }
    };
    // SAFETY: The context is valid, and the operations are constant.
    unsafe { private::verbs_set_ops(verbs, ops) };
    verbs
}

/// Asks the kernel for a context, and agrees with the driver about features. One that answers what
/// it was not asked is not a driver of ours. Returns the features of both.
///
/// # Safety
///
/// `context` is initialised.
unsafe fn get_context(context: *mut verbs_context, want: u32) -> Result<u32, Errno> {
    let mut req = Request::<ib_uverbs_get_context, siw_ureq_alloc_ctx>::zeroed();
    let mut resp = Response::<ib_uverbs_get_context_resp, siw_uresp_alloc_ctx>::zeroed();
    req.driver.want = want;
    let (cmd, cmd_size) = req.parts();
    let (ans, ans_size) = resp.parts();
    // SAFETY: By the requirements of this function; request and response are as long as said.
    Errno::check(unsafe { private::ibv_cmd_get_context(context, cmd, cmd_size, ans, ans_size) })?;
    agreed(&resp.driver, want)
}

/// Asks the kernel for the features of a context that is open already. `EPROTONOSUPPORT` if the
/// driver does not tell them; the C driver does not.
///
/// # Safety
///
/// `context` is initialised.
unsafe fn query_context(context: *mut verbs_context, want: u32) -> Result<u32, Errno> {
    let mut answer = siw_uresp_alloc_ctx::default();
    // SAFETY: By the requirements of this function.
    let context = unsafe { &raw mut (*context).context };
    let ask = |buffer| {
        // SAFETY: The context is valid, and so is the buffer.
        Errno::check(unsafe { private::ibv_cmd_query_context(context, buffer) })
    };
    CommandBuffer::with_answer(QUERY_CONTEXT, QUERY_CONTEXT_RESP, &mut answer, ask)?;
    agreed(&answer, want)
}

/// The features that the driver names, if it was asked for all of them.
fn agreed(answer: &siw_uresp_alloc_ctx, want: u32) -> Result<u32, Errno> {
    match answer.pad & !want {
        0 => Ok(answer.pad),
        _ => Err(Errno::EPROTO),
    }
}

/// Releases what a context holds.
///
/// # Safety
///
/// `context` is initialised, and the program does not use it any more.
unsafe fn close(context: *mut Context) {
    // SAFETY: By the requirements of this function.
    unsafe { private::verbs_uninit_context(context.cast()) };
    // SAFETY: The program counts as a user since `alloc_context`.
    drop(unsafe { Hold::take_over(context) });
}

/// `free_context`: closes a device.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn free_context(context: *mut ibv_context) {
    // SAFETY: It is part of what `alloc_context` has made; this is the program's last use.
    unsafe { close(outer(context)) };
}

/// The version of the firmware as text that ends with a zero: the driver gives three numbers in
/// one.
fn firmware(raw: u64) -> [u8; 64] {
    let mut text = [0; 64];
    let part = |shift: u32| (raw >> shift) & 0xffff;
    let [room @ .., _] = &mut text;
    // It fits. If it did not, it would be cut off.
    let _ = write!(room.as_mut_slice(), "{}.{}.{}", part(32), part(16), part(0));
    text
}

/// `IBV_DEVICE_SRQ_RESIZE`.
const SRQ_RESIZE: u32 = bindings::ibv_device_cap_flags_IBV_DEVICE_SRQ_RESIZE;

/// `query_device_ex`.
///
/// # Safety
///
/// As `ops` says. There is room for `attr_size` bytes.
pub(super) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    let mut resp = Response::<ib_uverbs_ex_query_device_resp>::zeroed();
    let (ans, mut ans_size) = resp.parts();
    // SAFETY: The context is valid, and there is as much room for attributes and response as said.
    let result = Errno::check(unsafe {
        private::ibv_cmd_query_device_any(context, input, attr, attr_size, ans, &mut ans_size)
    });
    if result.is_ok() {
        // The text begins the attributes. Not all that follows may be there.
        let text: *mut [u8; 64] = attr.cast();
        // SAFETY: The call above fails if there is no room for the original attributes.
        unsafe { text.write(firmware(resp.core.base.fw_ver)) };
        // The driver cannot say what does not hold for programs that use another library.
        // SAFETY: The context is part of what `alloc_context` has made, and in use.
        let features = unsafe { (*outer(context)).features };
        if features & feature::RFC7306 != 0 {
            // SAFETY: There is room for the original attributes, or the call above fails.
            unsafe { (*attr).orig_attr.atomic_cap = ATOMIC_GLOB };
            let end =
                offset_of!(ibv_device_attr_ex, odp_caps).saturating_add(size_of::<ibv_odp_caps>());
            if attr_size >= end {
                // SAFETY: There is room for it, and the call above has filled it in.
                let caps = unsafe { &mut (*attr).odp_caps };
                if caps.general_caps != 0 {
                    caps.per_transport_caps.rc_odp_caps |= ODP_ATOMIC;
                }
            }
        }
        if features & feature::RESIZE_SRQ != 0 {
            // SAFETY: There is room for the original attributes, or the call above fails.
            unsafe { (*attr).orig_attr.device_cap_flags |= SRQ_RESIZE };
            // The same flags, and more. Older programs have shorter attributes.
            let end =
                const { offset_of!(ibv_device_attr_ex, device_cap_flags_ex) + size_of::<u64>() };
            if attr_size >= end {
                // SAFETY: There is as much room as the program says.
                unsafe { (*attr).device_cap_flags_ex |= u64::from(SRQ_RESIZE) };
            }
        }
    }
    number(result)
}

/// `query_port`. The driver knows no LID, so it is made of an address.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    let mut req = Request::<ib_uverbs_query_port>::zeroed();
    let (cmd, size) = req.parts();
    // SAFETY: The context and the room for attributes are valid; the request is as long as said.
    let ret = unsafe { private::ibv_cmd_query_port(context, port, attr, cmd, size) };
    let result = Errno::check(ret);
    if result.is_ok() {
        // SAFETY: The context is valid.
        let local = unsafe { lid::Local::of(context, port) };
        // SAFETY: The room for attributes is valid.
        unsafe { (*attr).lid = local.map_or(0, |local| local.lid()) };
    }
    number(result)
}

const _: () = assert!(offset_of!(ibv_device_attr_ex, orig_attr.fw_ver) == 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_has_three_numbers() {
        let text = firmware(0xdead_0001_0203_ffff);
        assert!(text.starts_with(b"1.515.65535\0"));
    }
}
