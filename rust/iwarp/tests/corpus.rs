// SPDX-License-Identifier: GPL-2.0

//! The fuzz targets over the inputs that are kept: what the fuzzer has found worth keeping, and
//! what once failed. And over some that are made up, so that it shows if a target is broken.

mod targets;

/// The inputs of a file of the corpus, each with its line.
fn inputs(text: &str) -> impl Iterator<Item = (&str, Vec<u8>)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let hex = line.split(' ').next().unwrap();
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (line, (0..hex.len()).step_by(2).map(byte).collect())
        })
}

fn replay(text: &str, target: fn(&[u8])) {
    let mut n = 0;
    for (line, bytes) in inputs(text) {
        // Shown only if the target panics.
        println!("{line}");
        target(&bytes);
        n += 1;
    }
    assert_ne!(n, 0);
    target(&[]);
}

macro_rules! replay {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let text = include_str!(concat!("../fuzz/corpus/", stringify!($name), ".txt"));
            replay(text, targets::$name::run);
        }
    )*};
}

replay!(access handshake queue_pair receive session stream terminate wire);
