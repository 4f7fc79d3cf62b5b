// SPDX-License-Identifier: GPL-2.0

//! CRC32c, the Castagnoli CRC of iSCSI (RFC 3720, 12.1) and MPA (RFC 5044, 4.4).
//!
//! The kernel's function uses the CPU's instruction if there is one. Tables are faster without it,
//! as in User Mode Linux, and where the instruction is emulated. [`choose`] measures both.
//!
//! C header: [`include/linux/crc32c.h`](srctree/include/linux/crc32c.h)

mod table;

use crate::{
    bindings,
    crc32c::table::{
        add_byte,
        add_word, //
    },
    sync::AccessOnce, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::atomic::Atomic,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// Whether tables are faster on this machine.
static BY_TABLE: Atomic<bool> = Atomic::new(false);

/// The usual number of bytes in a TCP segment.
static SAMPLE: [u8; 1448] = {
    let mut sample = [0; 1448];
    let mut at = 0;
    while at < sample.len() {
        sample[at] = (at * at >> 3) as u8;
        at += 1;
    }
    sample
};

/// Measures which way is faster. Called once, before the first [`Crc32c`] is made. Process context.
///
/// Fails with `EIO` if the two compute different results.
pub fn choose() -> Result {
    let sample = NonNull::from(&SAMPLE).cast();
    let (mut kernel, mut table) = (i64::MAX, i64::MAX);
    // The fastest run of each is the one that was not interrupted.
    for _ in 0..16 {
        let start = Instant::<Monotonic>::now();
        // SAFETY: The sample is valid for reads of its length.
        let one = unsafe { by_kernel(!0, sample, SAMPLE.len()) };
        let middle = Instant::<Monotonic>::now();
        // SAFETY: The sample is valid for reads of its length.
        let other = unsafe { by_table(!0, sample, SAMPLE.len()) };
        table = table.min(middle.elapsed().as_nanos());
        kernel = kernel.min((middle - start).as_nanos());
        if one != other {
            pr_err!("CRC32c: the kernel's {one:08x}, by table {other:08x}\n");
            return Err(EIO);
        }
    }
    BY_TABLE.write_once(table < kernel);
    Ok(())
}

/// # Safety
///
/// `data` must be valid for reads of `len` bytes. Others may write there at the same time.
unsafe fn by_kernel(crc: u32, data: NonNull<u8>, len: usize) -> u32 {
    // SAFETY: By the contract of this function.
    unsafe { bindings::crc32c(crc, data.as_ptr().cast(), len) }
}

/// # Safety
///
/// As [`by_kernel`].
unsafe fn by_table(mut crc: u32, data: NonNull<u8>, len: usize) -> u32 {
    // Reads are volatile, because others may write at the same time.
    let data = data.as_ptr().cast_const();
    let head = data.align_offset(align_of::<u64>()).min(len);
    let tail = len - (len - head) % size_of::<u64>();
    for at in 0..head {
        // SAFETY: The byte is in the range that is valid for reads by the contract of this
        // function.
        crc = add_byte(crc, unsafe { data.wrapping_add(at).read_volatile() });
    }
    for at in (head..tail).step_by(size_of::<u64>()) {
        let word = data.wrapping_add(at).cast::<u64>();
        // SAFETY: A word before `tail`, so inside of what is valid for reads. It is aligned: `head`
        // bytes lead to an aligned one, and each word to the next.
        crc = add_word(crc, u64::from_le(unsafe { word.read_volatile() }));
    }
    for at in tail..len {
        // SAFETY: The byte is in the range that is valid for reads by the contract of this
        // function.
        crc = add_byte(crc, unsafe { data.wrapping_add(at).read_volatile() });
    }
    crc
}

/// The state of a CRC32c computation.
///
/// It starts with all ones. The complement goes on the wire, least significant byte first.
///
/// # Examples
///
/// ```ignore
/// let mut crc = Crc32c::new();
/// crc.update(&[0; 32]);
/// assert_eq!(crc.finish(), 0x8a91_36aau32.to_le_bytes());
/// crc.update(&crc.finish());
/// assert!(crc.is_good());
/// ```
#[derive(Clone, Copy)]
pub struct Crc32c(u32);

impl Crc32c {
    /// The CRC of no data.
    pub const fn new() -> Self {
        Self(!0)
    }

    /// Adds `data` to the CRC. Any context.
    pub fn update(&mut self, data: &[u8]) {
        // SAFETY: `data` is valid for reads of its length.
        unsafe { self.update_at(NonNull::from(data).cast(), data.len()) };
    }

    /// Adds `len` bytes at `data` to the CRC. Any context.
    ///
    /// # Safety
    ///
    /// `data` must be valid for reads of `len` bytes. Others may write there at the same time.
    pub unsafe fn update_at(&mut self, data: NonNull<u8>, len: usize) {
        self.0 = match BY_TABLE.read_once() {
            // SAFETY: By the contract of this function.
            true => unsafe { by_table(self.0, data, len) },
            // SAFETY: By the contract of this function.
            false => unsafe { by_kernel(self.0, data, len) },
        };
    }

    /// Whether the data ends with the CRC of the bytes before it. The residue is then the same for
    /// all data.
    pub fn is_good(self) -> bool {
        self.finish() == 0x4867_4bc7u32.to_le_bytes()
    }

    /// The CRC as it is on the wire.
    pub const fn finish(self) -> [u8; 4] {
        (!self.0).to_le_bytes()
    }
}
