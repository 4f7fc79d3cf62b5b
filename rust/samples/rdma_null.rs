// SPDX-License-Identifier: GPL-2.0

//! Null RDMA provider.
//!
//! Registers a device, `rdma_null0`, that transfers nothing: programs can open it and make
//! protection domains, and everything else fails with `EOPNOTSUPP`. It shows the least that a
//! provider built on [`kapi`] has, and that `kapi` needs no more than that.
//!
//! `make sample` builds it. Without a provider library, programs reach the device by the commands
//! of `/dev/infiniband/uverbs*` only.

use kapi::{
    rdma::{
        pd,
        ucontext,
        Device,
        DeviceAttr,
        DeviceConfig,
        Driver,
        DriverRegistration,
        Pd,
        PortAttr,
        Udata, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

#[allow(
    dead_code,
    unused_imports,
    reason = "the library has more than a null provider uses"
)]
#[path = "../kapi/mod.rs"]
mod kapi;

module! {
    type: Module,
    name: "rdma_null",
    authors: ["siw contributors"],
    description: "Null RDMA provider",
    license: "GPL",
}

/// A number that `enum rdma_driver_id` does not have: "null" in ASCII.
const DRIVER_ID: u32 = 0x6e75_6c6c;
/// Protection domains that a device can have.
const MAX_PD: u32 = 16;
/// Locally administered, and the same for each device: nothing can be reached by it.
const GUID: [u8; 8] = [2, 0, 0, 0xff, 0xfe, 0, 0, 1];

/// The provider, as the RDMA core's operations know it.
struct Null;

/// What the provider keeps of a device.
struct Data {
    /// Protection domains that can still be made.
    room: Atomic<u32>,
}

#[vtable]
impl Driver for Null {
    const DRIVER_ID: u32 = DRIVER_ID;
    const ABI_VERSION: u32 = 1;

    type Data = Data;
    type Ucontext = ();
    type Pd = ();
    type Cq = ();
    type Qp = ();
    type Srq = ();
    type Mr = ();
    type Listener = ();

    fn query_device(_dev: &Device<Self>) -> DeviceAttr {
        DeviceAttr {
            sys_image_guid: GUID,
            max_pd: MAX_PD,
            ..DeviceAttr::default()
        }
    }

    fn query_port(_dev: &Device<Self>) -> Result<PortAttr> {
        Ok(PortAttr {
            gid_tbl_len: 1,
            ..PortAttr::default()
        })
    }

    fn query_gid(_dev: &Device<Self>, _index: usize) -> Result<[u8; 16]> {
        let [a, b, c, d, e, f, g, h] = GUID;
        Ok([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h])
    }

    fn alloc_ucontext<'a>(
        new: ucontext::New<'a, Self>,
        _udata: &mut Udata<'_>,
    ) -> Result<ucontext::Live<'a, Self>> {
        new.init(())
    }

    fn alloc_pd<'a>(
        new: pd::New<'a, Self>,
        _udata: Option<&mut Udata<'_>>,
    ) -> Result<pd::Live<'a, Self>> {
        let room = &new.device().room;
        let mut now = room.load(Relaxed);
        loop {
            let less = now.checked_sub(1).ok_or(ENOMEM)?;
            match room.cmpxchg(now, less, Relaxed) {
                Ok(_) => return new.init(()),
                Err(other) => now = other,
            }
        }
    }

    fn dealloc_pd(pd: &Pd<Self>) {
        pd.device().room.fetch_add(1, Relaxed);
    }
}

struct Module {
    /// Unregisters the device when the module goes.
    _devices: DriverRegistration<Null>,
}

impl kernel::Module for Module {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let cfg = DeviceConfig {
            node_guid: GUID,
            node_desc: c"Null RDMA device",
            num_comp_vectors: 1,
        };
        let devices = DriverRegistration::new();
        let data = Data {
            room: Atomic::new(MAX_PD),
        };
        Device::<Null>::new(module, &cfg, Ok::<_, Error>(data))?.register(c"rdma_null%d")?;
        Ok(Self { _devices: devices })
    }
}
