// SPDX-License-Identifier: GPL-2.0

//! Null RDMA provider.
//!
//! Registers a device, `rdma_null0`, that transfers nothing: programs can open it and make
//! protection domains, and everything else fails with `EOPNOTSUPP`. It shows the least that a
//! provider built on [`rdma`] has, and that `rdma` needs no more than that.
//!
//! `make sample` builds it. Without a provider library, programs reach the device by the commands
//! of `/dev/infiniband/uverbs*` only.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use rdma::{
    pd,
    ucontext,
    Device,
    DeviceAttr,
    DeviceConfig,
    Driver,
    DriverRegistration,
    PortAttr,
    Udata, //
};

module! {
    type: Module,
    name: "rdma_null",
    authors: ["siw contributors"],
    description: "Null RDMA provider",
    license: "GPL",
}

/// Protection domains that a device can have.
const MAX_PD: u32 = 16;
/// Locally administered, and the same for each device: nothing can be reached by it.
const GUID: [u8; 8] = [2, 0, 0, 0xff, 0xfe, 0, 0, 1];

/// The provider, as the RDMA core's operations know it.
struct Null;

/// What the provider keeps of a program's use of a device, and of a protection domain: nothing.
struct Context;
struct Pd;

#[vtable]
impl Driver for Null {
    /// A number that `enum rdma_driver_id` does not have: "null" in ASCII.
    const DRIVER_ID: u32 = 0x6e75_6c6c;
    const ABI_VERSION: u32 = 1;

    /// The number of protection domains.
    type Data = Atomic<u32>;
    type Ucontext = Context;
    type Pd = Pd;
    type Cq = ();
    type Qp = ();
    type Srq = ();
    type Mr = ();
    type Mw = ();
    type Iwcm = ();

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
}

#[vtable]
impl ucontext::Operations<Null> for Context {
    fn alloc<'a>(
        new: ucontext::New<'a, Null>,
        _udata: &mut Udata<'_>,
    ) -> Result<ucontext::Live<'a, Null>> {
        new.init(Self)
    }
}

#[vtable]
impl pd::Operations<Null> for Pd {
    fn alloc<'a>(
        new: pd::New<'a, Null>,
        _udata: Option<&mut Udata<'_>>,
    ) -> Result<pd::Live<'a, Null>> {
        let pds = new.device();
        if pds.fetch_add(1, Relaxed) >= MAX_PD {
            pds.fetch_sub(1, Relaxed);
            return Err(ENOMEM);
        }
        new.init(Self)
    }

    fn dealloc(pd: &pd::Pd<Null>) {
        pd.device().fetch_sub(1, Relaxed);
    }
}

struct Module {
    /// Unregisters the device when the module goes.
    _devices: DriverRegistration<Null>,
}

impl kernel::Module for Module {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let cfg = DeviceConfig {
            net: None,
            node_guid: GUID,
            node_desc: c"Null RDMA device",
            num_comp_vectors: 1,
        };
        let devices = DriverRegistration::new(c"rdma_null")?;
        Device::<Null>::new(module, &cfg, Atomic::new(0))?.register(c"rdma_null%d")?;
        Ok(Self { _devices: devices })
    }
}
