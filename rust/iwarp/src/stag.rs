// SPDX-License-Identifier: GPL-2.0

//! Steering tags: 24 bits of table index and 8 bits of key, and the rule that makes fresh ones.

/// A steering tag. Any `u32` is one; whether it names something is for the table to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stag(pub u32);

impl Stag {
    /// What zero-length RTR messages carry. Nobody may validate it (RFC 5040 7.2), but some
    /// hardware treats STag 0 in a special way.
    pub const RTR: Self = Self(1);
    /// Largest table index.
    pub const MAX_INDEX: u32 = 0x00ff_ffff;

    /// Puts a tag together. `None` for index 0, which is never handed out, and for one above
    /// [`Self::MAX_INDEX`].
    pub const fn new(index: u32, key: u8) -> Option<Self> {
        if index == 0 || index > Self::MAX_INDEX {
            return None;
        }
        let [_, a, b, c] = index.to_be_bytes();
        Some(Self(u32::from_be_bytes([a, b, c, key])))
    }

    /// Index of the table entry.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// Key, also called instance: must equal the entry's.
    pub const fn key(self) -> u8 {
        let [_, _, _, key] = self.0.to_be_bytes();
        key
    }

    /// The same index with another key.
    #[must_use]
    pub const fn with_key(self, key: u8) -> Self {
        let [a, b, c, _] = self.0.to_be_bytes();
        Self(u32::from_be_bytes([a, b, c, key]))
    }
}

/// Makes tags a peer cannot guess and that do not come back soon.
///
/// A counter goes through a keyed permutation of 24 bits for the index; the key is the number of
/// rounds done so far plus a keyed offset of the index. So an index is not drawn twice within 2^24
/// draws and a whole tag not within 255 * 2^24. Index 0 and key 0 are left out. One generator per
/// module: tags of different devices then never coincide.
#[derive(Clone, Debug)]
pub struct StagGenerator {
    count: u64,
    keys: [u32; 4],
}

impl StagGenerator {
    /// `seed` must be random and secret; it stands for the boot in the tags.
    pub const fn new(seed: [u32; 4]) -> Self {
        Self {
            count: 0,
            keys: seed,
        }
    }

    /// The next tag. The caller draws again if the index is in use.
    pub fn draw(&mut self) -> Stag {
        loop {
            let count = self.count;
            self.count = count.wrapping_add(1);
            let [_, _, _, _, _, a, b, c] = count.to_be_bytes();
            let index = self.permute(u32::from_be_bytes([0, a, b, c]));
            let [_, _, _, _, round, ..] = count.to_be_bytes();
            let key = round.wrapping_add(self.offset(index));
            // One index and one key in 256 are skipped, so this ends.
            if let (Some(stag), true) = (Stag::new(index, key), key != 0) {
                return stag;
            }
        }
    }

    /// Four Feistel rounds over two halves of 12 bits: a bijection on 24 bits whatever the round
    /// function.
    fn permute(&self, value: u32) -> u32 {
        let (mut left, mut right) = ((value >> 12) & 0xfff, value & 0xfff);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & 0xfff));
        }
        (left << 12) | right
    }

    fn offset(&self, index: u32) -> u8 {
        let [a, b, ..] = self.keys;
        let [offset, ..] = mix(mix(index ^ a) ^ b).to_be_bytes();
        offset
    }
}

/// A fixed mixing function of 32 bits (xorshift and odd multipliers).
const fn mix(value: u32) -> u32 {
    let mut v = value;
    v ^= v >> 16;
    v = v.wrapping_mul(0x7feb_352d);
    v ^= v >> 15;
    v = v.wrapping_mul(0x846c_a68b);
    v ^ (v >> 16)
}
