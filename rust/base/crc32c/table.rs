// SPDX-License-Identifier: GPL-2.0

//! CRC32c by table lookups, eight bytes at a time ("slicing by 8": Kounavis and Berry, ISCC 2005).
//!
//! The kernel's own function is slower where the CPU has no instruction, because it goes byte by
//! byte. It is also slower where the instruction is emulated and takes longer than these lookups.
//!
//! Nothing here needs a kernel: the host tests of `rust/iwarp` include this file.

/// Table `n` has the effect on the CRC of each byte with `n` zero bytes behind it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bits = 0;
        while bits < 64 {
            crc = (crc >> 1) ^ if crc & 1 == 0 { 0 } else { 0x82f6_3b78 };
            bits += 1;
            if bits % 8 == 0 {
                tables[bits / 8 - 1][byte] = crc;
            }
        }
        byte += 1;
    }
    tables
}

fn look_up(table: &[u32; 256], byte: u8) -> u32 {
    // The table has an entry for each byte.
    table.get(usize::from(byte)).copied().unwrap_or(0)
}

/// Adds eight bytes to `crc`, the first of them the least significant. The CRC is all ones at the
/// beginning and complemented at the end.
#[inline]
pub(super) fn add_word(crc: u32, word: u64) -> u32 {
    let [t0, t1, t2, t3, t4, t5, t6, t7] = &TABLES;
    let [a, b, c, d, e, f, g, h] = (word ^ u64::from(crc)).to_le_bytes();
    let first = look_up(t7, a) ^ look_up(t6, b) ^ look_up(t5, c) ^ look_up(t4, d);
    first ^ look_up(t3, e) ^ look_up(t2, f) ^ look_up(t1, g) ^ look_up(t0, h)
}

/// Adds one byte to `crc`.
#[inline]
pub(super) fn add_byte(crc: u32, byte: u8) -> u32 {
    let [table, ..] = &TABLES;
    let [low, ..] = crc.to_le_bytes();
    (crc >> 8) ^ look_up(table, low ^ byte)
}
