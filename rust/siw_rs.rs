// SPDX-License-Identifier: GPL-2.0

//! Software iWARP.

use kernel::prelude::*;

mod driver;
mod kapi;

module! {
    type: Siw,
    name: "siw",
    authors: ["siw contributors"],
    description: "Software iWARP provider",
    license: "GPL",
}

struct Siw;

impl kernel::Module for Siw {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
