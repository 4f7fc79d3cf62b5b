// SPDX-License-Identifier: GPL-2.0

//! The fuzz targets over the inputs that are kept: what the fuzzer has found worth keeping, and
//! what once failed. And over some that are made up, so that it shows if a target is broken.

mod targets;

use std::path::Path;

fn replay(name: &str, target: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        // Shown only if the target panics.
        println!("{}", file.display());
        target(&bytes);
    }
    target(&[]);
}

macro_rules! replay {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            replay(stringify!($name), targets::$name::run);
        }
    )*};
}

replay!(access handshake queue_pair receive session stream terminate wire);
