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

/// A pseudorandom function with a random key, made anew with each boot: without the key its values
/// cannot be told from random ones.
pub trait Secret {
    /// The value at a point.
    fn at(&self, point: [u64; 2]) -> u64;
}

/// Makes tags that do not come back soon, and that cannot be guessed, even from all earlier ones.
///
/// The tags are numbered. A pass goes over a quarter of the indexes, in an order that no other pass
/// has, so an index comes back after 3 * 2^22 numbers at the earliest. It has another key each
/// time: the whole tag comes back after 255 * 2^24 numbers at the earliest. Index 0 and key 0 are
/// left out. One generator per module: tags of different devices then never coincide.
#[derive(Clone, Debug)]
pub struct StagGenerator<S> {
    secret: S,
}

impl<S: Secret> StagGenerator<S> {
    /// A generator of tags that `secret` makes different with each boot.
    pub const fn new(secret: S) -> Self {
        Self { secret }
    }

    /// Tag number `n`; a few numbers have none. The caller goes on to the next number if the index
    /// is in use.
    pub fn nth(&self, n: u64) -> Option<Stag> {
        let (pass, place) = (n >> 22, n & 0x3f_ffff);
        // Every fourth one: the tags of a pass are all over the range.
        let index = (self.permute(pass << 1, 11, place) << 2) | (pass & 3);
        // The keys of an index come in an order of its own, and in another one after all 256.
        let order = ((n >> 32) << 25) | (index << 1) | 1;
        let key = self.permute(order, 4, (n >> 24) & 0xff);
        let ([.., a, b, c], [.., key]) = (index.to_be_bytes(), key.to_be_bytes());
        (index != 0 && key != 0).then_some(Stag(u32::from_be_bytes([a, b, c, key])))
    }

    /// A Feistel network over two halves of `bits` bits: a bijection for any secret. Each `order`
    /// gives another one.
    fn permute(&self, order: u64, bits: u32, value: u64) -> u64 {
        /// The number that NIST SP 800-38G has for values as small as these.
        const ROUNDS: u64 = 10;
        let mask = !u64::MAX.wrapping_shl(bits);
        let (mut left, mut right) = (value.wrapping_shr(bits) & mask, value & mask);
        for round in 0..ROUNDS {
            let point = [order, (round << 32) | right];
            (left, right) = (right, left ^ (self.secret.at(point) & mask));
        }
        left.wrapping_shl(bits) | right
    }
}
