// SPDX-License-Identifier: GPL-2.0

#![no_main]

#[path = "../../tests/targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::session::run(data));
