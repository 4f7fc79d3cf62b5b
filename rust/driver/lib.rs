// SPDX-License-Identifier: GPL-2.0

//! The provider `siw`: joins the kernel's interfaces and the iWARP protocols.
//!
//! The locks and their order are in [`locks`].

#![forbid(unsafe_code)]

#[macro_use]
pub(crate) mod locks;

pub(crate) mod cm;
pub(crate) mod cq;
pub(crate) mod datamover;
pub(crate) mod debugfs;
pub(crate) mod device;
pub(crate) mod limits;
pub(crate) mod link;
pub(crate) mod params;
pub(crate) mod pd;
pub(crate) mod qp;
mod queue;
pub(crate) mod srq;
pub(crate) mod stats;
pub(crate) mod tpt;
pub(crate) mod uapi;
pub(crate) mod ucontext;
pub(crate) mod wc;

use base::{
    crc32c,
    random::{
        self,
        SipHash, //
    },
    release::{
        ReleaseRef,
        Releases, //
    },
    slot,
    wq::{
        Kind,
        WorkQueue, //
    }, //
};
use iwarp::mem::stag::{
    Secret,
    Stag,
    StagGenerator, //
};
use kernel::{
    debugfs::Dir,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};
use rdma::{
    self,
    DriverRegistration,
    LinkRegistration, //
};
use soft::{
    mem::programs::Programs,
    netdev::notifier::NetdevNotifier,
    tcp::Net, //
};

/// The version, reported as the firmware's.
pub(crate) const VERSION: [u16; 3] = [0, 1, 0];

#[cfg(linux_since_7_3)]
use base::version::LocalModule;

pub use self::params::{
    Numbers,
    Params, //
};
pub(crate) use self::{
    device::Device,
    qp::Qp, //
};

/// The prefix of this crate's messages.
const __LOG_PREFIX: &[u8] = concat!(env!("MODULE_NAME"), "\0").as_bytes();

/// The driver, as the RDMA core's operations know it.
pub(crate) struct Siw;

/// The core's device object.
pub(crate) type IbDevice = rdma::Device<Siw>;
/// The driver's part of a device, which may outlive the core's object.
pub(crate) type DeviceRef = Arc<Device>;
/// A queue pair as the core allocated it, with a [`qp::Qp`] inside.
pub(crate) type QpObj = rdma::Qp<Siw>;
/// A counted reference to a queue pair; `destroy_qp` waits for all of them.
pub(crate) type QpRef = ARef<QpObj>;
/// A completion queue as the core allocated it.
pub(crate) type CqObj = rdma::Cq<Siw>;
/// A counted reference to a completion queue.
pub(crate) type CqRef = ARef<CqObj>;
/// A shared receive queue as the core allocated it.
pub(crate) type SrqObj = rdma::Srq<Siw>;
/// A counted reference to a shared receive queue.
pub(crate) type SrqRef = ARef<SrqObj>;

/// Makes STags unpredictable.
struct StagSecret(SipHash);

impl Secret for StagSecret {
    fn at(&self, point: [u64; 2]) -> u64 {
        self.0.hash(point)
    }
}

/// The data of the module, which all devices share.
#[pin_data]
pub(crate) struct Shared {
    /// One generator for the module, so that the STags of two devices never coincide.
    stags: StagGenerator<StagSecret>,
    /// STags generated so far.
    stags_made: Atomic<u64>,
    /// QP numbers drawn so far, from a random start. One count for the module, so that a device
    /// that takes the place of another one has none of its numbers.
    qpns_made: Atomic<u64>,
    /// Held while a device is added.
    #[pin]
    pub(crate) adding: Mutex<()>,
    /// Releases sockets.
    pub(crate) sockets: ReleaseRef,
    /// Releases memory of programs.
    pub(crate) memory: ReleaseRef,
    /// Work queue of connection management.
    pub(crate) cm: WorkQueue,
    /// The connections that can go on over another path.
    #[pin]
    pub(crate) sessions: cm::Sessions,
    /// The servers at loopback interfaces.
    #[pin]
    pub(crate) loopbacks: cm::Loopbacks,
    /// Work queue of the control pipelines.
    pub(crate) control: WorkQueue,
    /// The programs that have memory on demand.
    pub(crate) programs: Arc<Programs>,
    /// The datamovers.
    pub(crate) movers: datamover::Movers,
    /// Parent of the devices' debugfs folders.
    pub(crate) debugfs: Dir,
    /// Tells peers one load of the module from another.
    pub(crate) boot_id: u64,
    module: &'static ThisModule,
    /// The initial settings of devices.
    pub(crate) params: Params,
}

impl Shared {
    fn new(
        module: &'static ThisModule,
        params: Params,
        sockets: ReleaseRef,
        memory: ReleaseRef,
    ) -> Result<Arc<Self>> {
        let cm = WorkQueue::new(c"siw_cm", Kind::Unbound)?;
        let control = WorkQueue::new(c"siw_control", Kind::Unbound)?;
        let programs = Programs::new(c"siw_pages")?;
        let movers = datamover::Movers::new()?;
        Arc::pin_init(
            pin_init!(Self {
            stags: StagGenerator::new(StagSecret(SipHash::new())),
            stags_made: Atomic::new(0),
            qpns_made: Atomic::new(random::u32().into()),
            adding <- ranked_mutex!(Rank::Adding, ()),
            sockets,
            memory,
            cm,
            sessions <- cm::Sessions::new(),
            loopbacks <- cm::Loopbacks::new(),
            control,
            programs,
            movers,
            debugfs: Dir::new(c"siw"),
            boot_id: random::u64(),
            module,
            params,
            }),
            GFP_KERNEL,
        )
    }

    /// Generates an STag, whose index may be in use. Any context.
    pub(crate) fn draw_stag(&self) -> Stag {
        loop {
            // One number in 256 gives no STag.
            if let Some(stag) = self.stags.nth(self.stags_made.fetch_add(1, Relaxed)) {
                return stag;
            }
        }
    }

    /// Draws a QP number, which may be in use. It comes back after all others. Any context.
    pub(crate) fn draw_qpn(&self) -> u32 {
        const NUMBERS: u32 = limits::QPN_LAST - limits::QPN_FIRST + 1;
        let turn = self.qpns_made.fetch_add(1, Relaxed) % u64::from(NUMBERS);
        limits::QPN_FIRST + turn as u32
    }

    /// The module, for objects that must pin it.
    pub(crate) fn module(&self) -> &'static ThisModule {
        self.module
    }
}

/// Waits for all queued work before the work queues go, because the last user of a queue must not
/// be one of its own items.
struct Quiesce(Arc<Shared>);

impl Drop for Quiesce {
    fn drop(&mut self) {
        self.0.cm.flush();
        self.0.control.flush();
        self.0.programs.quiesce();
        self.0.movers.flush();
    }
}

/// Everything that the module registers. Fields are dropped in this order: nothing new can come,
/// then the devices go, then what they use.
pub struct Provider {
    _link: Pin<KBox<LinkRegistration<link::Link>>>,
    _netdev: NetdevNotifier,
    _devices: DriverRegistration<Siw>,
    _shared: slot::Installed,
    _quiesce: Quiesce,
    _net: Net,
    _memory: Releases,
}

impl Provider {
    /// Registers the link type; devices come by `rdma link add`.
    pub fn new(module: &'static ThisModule, params: Params) -> Result<Self> {
        crc32c::choose()?;
        // The end of memory on demand waits for the kernel, which may be freeing memory.
        let memory = Releases::new(c"siw_memory", Kind::Waiting, "memory of programs")?;
        let net = Net::new(c"siw_sockets")?;
        let shared = Shared::new(module, params, net.user(), memory.user())?;
        let quiesce = Quiesce(shared.clone());
        let installed = slot::install(Arc::new(shared, GFP_KERNEL)?)?;
        let devices = DriverRegistration::new(c"siw")?;
        let netdev = NetdevNotifier::register(Arc::new(link::Events, GFP_KERNEL)?)?;
        let link = KBox::pin_init(LinkRegistration::new(c"siw"), GFP_KERNEL)?;
        Ok(Self {
            _link: link,
            _netdev: netdev,
            _devices: devices,
            _shared: installed,
            _quiesce: quiesce,
            _net: net,
            _memory: memory,
        })
    }
}
