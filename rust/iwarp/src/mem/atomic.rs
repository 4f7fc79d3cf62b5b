// SPDX-License-Identifier: GPL-2.0

//! Atomic operations (RFC 7306 5.1): what becomes of the 64 bits of the target.

/// An atomic operation. All values are in the byte order of the host that has the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// FetchAdd.
    FetchAdd {
        /// The value to add.
        add: u64,
        /// The highest bit of each field: no carry leaves it. 0 for one field of 64 bits.
        mask: u64,
    },
    /// CmpSwap.
    CmpSwap {
        /// The value to compare with.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The new value.
        swap: u64,
        /// The bits that are replaced.
        swap_mask: u64,
    },
}

impl AtomicOp {
    /// Bytes of the target, which is aligned to as many.
    pub const LEN: u32 = 8;

    /// What the target becomes.
    pub const fn apply(self, old: u64) -> u64 {
        match self {
            Self::FetchAdd { add, mask } => {
                // Without the highest bits of the fields no carry leaves a field.
                let sum = (old & !mask).wrapping_add(add & !mask);
                sum ^ ((old ^ add) & mask)
            }
            Self::CmpSwap {
                compare,
                compare_mask,
                swap,
                swap_mask,
            } => match (compare ^ old) & compare_mask {
                0 => (old & !swap_mask) | (swap & swap_mask),
                _ => old,
            },
        }
    }
}
