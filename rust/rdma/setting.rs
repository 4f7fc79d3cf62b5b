// SPDX-License-Identifier: GPL-2.0

//! Numbers of a device that the administrator of its network namespace may change.
//!
//! They are files in `/sys/class/infiniband/DEVICE/settings`, which is there in each network
//! namespace that sees the device.
//!
//! C header: [`include/linux/device.h`](srctree/include/linux/device.h)

use core::ptr::null_mut;

use kernel::{
    container_of,
    error::to_result,
    ffi,
    prelude::*,
    types::Opaque, //
};

use crate::device::{
    Device,
    Driver, //
};
use base::bindings::{
    self,
    attribute,
    attribute_group,
    device,
    device_attribute,
    ib_core_device, //
};

/// A number of something of type `T`. Both functions may sleep.
///
/// # Examples
///
/// ```ignore
/// // In `impl Driver`; `limit` is an `Atomic<u32>` of the payload.
/// const SETTINGS: &'static [Setting<Data>] = &[Setting {
///     name: c"limit",
///     get: |data| data.limit.read_once(),
///     set: |data, value| {
///         if value > MAX_LIMIT {
///             return Err(EINVAL);
///         }
///         data.limit.write_once(value);
///         Ok(())
///     },
/// }];
/// ```
pub struct Setting<T: 'static> {
    /// The name of the file.
    pub name: &'static CStr,
    /// Returns the value.
    pub get: fn(&T) -> u32,
    /// Fails, and changes nothing, if it cannot have that value.
    pub set: fn(&T, u32) -> Result,
}

/// `attr` is at offset 0, for [`File::from_attr`].
#[repr(C)]
struct File<T: 'static> {
    attr: Opaque<device_attribute>,
    setting: &'static Setting<T>,
}

impl<T> File<T> {
    /// # Safety
    ///
    /// `attr` is in a file of `T`, which is there during `'a`.
    unsafe fn from_attr<'a>(attr: *mut device_attribute) -> &'a Self {
        // SAFETY: By the requirements of this function; `attr` is at offset 0.
        unsafe { &*attr.cast() }
    }
}

/// The files of a device.
///
/// # Invariants
///
/// `group` names all of `_files`, by `_list`.
pub(super) struct Files<D: Driver> {
    _files: KVec<File<D::Data>>,
    _list: KVec<*mut attribute>,
    group: KBox<Opaque<attribute_group>>,
}

impl<D: Driver> Files<D> {
    /// May sleep.
    pub(super) fn new() -> Result<Self> {
        let mut files = KVec::with_capacity(D::SETTINGS.len(), GFP_KERNEL)?;
        for setting in D::SETTINGS {
            let mut attr: device_attribute = pin_init::zeroed();
            attr.attr.name = setting.name.as_char_ptr();
            attr.attr.mode = 0o644;
            attr.__bindgen_anon_1.show = Some(show::<D>);
            attr.__bindgen_anon_2.store = Some(store::<D>);
            let attr = Opaque::new(attr);
            files.push(File { attr, setting }, GFP_KERNEL)?;
        }
        let mut list = KVec::with_capacity(D::SETTINGS.len() + 1, GFP_KERNEL)?;
        for file in &files {
            // The attribute is the first of the structure.
            let attr = file.attr.get().cast::<attribute>();
            // SAFETY: It is complete, and nobody knows it yet.
            unsafe { bindings::sysfs_attr_init(attr) };
            list.push(attr, GFP_KERNEL)?;
        }
        list.push(null_mut(), GFP_KERNEL)?;
        let mut group = attribute_group {
            name: c"settings".as_char_ptr(),
            ..pin_init::zeroed()
        };
        group.__bindgen_anon_2.attrs = list.as_mut_ptr();
        let group = KBox::new(Opaque::new(group), GFP_KERNEL)?;
        // INVARIANT: Neither vector changes any more.
        Ok(Self {
            _files: files,
            _list: list,
            group,
        })
    }

    /// The value of `ib_device_ops::device_group`. The files must outlive the
    /// registration of the device.
    pub(super) fn group(&self) -> *const attribute_group {
        self.group.get()
    }
}

/// The device of which `dev` is seen in one of the namespaces.
///
/// # Safety
///
/// `dev` is in an `ib_core_device` of a device of `D`, which is registered during `'a`.
unsafe fn device_of<'a, D: Driver>(dev: *mut device) -> &'a Device<D> {
    // SAFETY: By the requirements of this function.
    let core = unsafe { container_of!(dev, ib_core_device, dev) };
    // SAFETY: `core` has the device that it is a view of, for as long as that exists.
    let owner = unsafe { (*core).owner };
    // SAFETY: `owner` is the device itself, of `D` by the requirements of this function.
    unsafe { Device::from_raw(owner) }
}

/// # Safety
///
/// Called by sysfs for a file of a device of `D`; `buf` is a page.
unsafe extern "C" fn show<D: Driver>(
    dev: *mut device,
    attr: *mut device_attribute,
    buf: *mut ffi::c_char,
) -> isize {
    // SAFETY: By the requirements of this function: sysfs waits for its callers before the device
    // goes.
    let dev = unsafe { device_of::<D>(dev) };
    // SAFETY: sysfs calls for one of the files of `D`, which outlive the registration.
    let file = unsafe { File::<D::Data>::from_attr(attr) };
    let value = (file.setting.get)(dev);
    // SAFETY: By the requirements of this function; the format is for one number.
    let len = unsafe { bindings::sysfs_emit(buf, c"%u\n".as_char_ptr(), value) };
    len as isize
}

/// # Safety
///
/// Called by sysfs for a file of a device of `D`; `buf` is text with an end.
unsafe extern "C" fn store<D: Driver>(
    dev: *mut device,
    attr: *mut device_attribute,
    buf: *const ffi::c_char,
    len: usize,
) -> isize {
    // SAFETY: By the requirements of this function: sysfs waits for its callers before the device
    // goes.
    let dev = unsafe { device_of::<D>(dev) };
    // The mode of the file only requires root in the eyes of the file system.
    // SAFETY: The device is registered.
    if !unsafe { bindings::ib_net_admin(dev.as_raw()) } {
        return EPERM.to_errno() as isize;
    }
    // SAFETY: sysfs calls for one of the files of `D`, which outlive the registration.
    let file = unsafe { File::<D::Data>::from_attr(attr) };
    let mut value = 0;
    // SAFETY: By the requirements of this function.
    let result = to_result(unsafe { bindings::kstrtouint(buf, 0, &mut value) })
        .and_then(|()| (file.setting.set)(dev, value));
    match result {
        Ok(()) => len as isize,
        Err(e) => e.to_errno() as isize,
    }
}
