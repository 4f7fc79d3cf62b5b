// SPDX-License-Identifier: GPL-2.0

//! RDMA devices: their tables, attributes and life.

mod accounts;
mod gids;

use self::{
    accounts::Accounts,
    gids::{
        Gids,
        NO_GIDS, //
    }, //
};
use super::{
    cm,
    cq::Cq,
    debugfs::Files,
    limits::{
        self,
        Counts, //
    },
    params,
    pd::Pd,
    srq::Srq,
    stats::{
        self,
        Stats, //
    },
    tpt::{
        region::Mr,
        window::Mw,
        Tpt, //
    },
    ucontext::Ucontext,
    DeviceRef,
    IbDevice,
    Params,
    Qp,
    QpObj,
    Shared,
    Siw,
    VERSION, //
};
use crate::uapi::abi;
use base::{
    netdev::NetDev,
    random,
    sync::{
        AccessOnce,
        SpinLockIrq, //
    },
    table::ObjTable,
    wq, //
};
use core::fmt::Write;
use iwarp::cm::{
    pair::{
        Life,
        Lives, //
    },
    Deadline, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    str::CStr,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    time::{
        msecs_to_jiffies,
        Jiffies,
        Msecs, //
    },
    workqueue::{
        impl_has_delayed_work,
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    }, //
};
use rdma::{
    eui48_to_guid,
    num_possible_cpus,
    port_active,
    port_cap,
    DeviceAttr,
    DeviceConfig,
    DeviceName,
    Driver,
    NodeType,
    PortAttr,
    Protocol,
    Setting,
    Traffic, //
};

/// "bmt", as in the C driver: user space identifies the device by it.
const VENDOR_ID: u32 = 0x62_6d_74;

/// Time in milliseconds that connections outlive their local address, in case it comes back.
const ADDR_GRACE_MS: Msecs = 5_000;

/// Number of the next device, reported as part number and context ID.
static NEXT_PART_ID: Atomic<u32> = Atomic::new(1);

/// The driver's part of an RDMA device.
#[pin_data]
pub(crate) struct Device {
    /// The network device.
    pub(crate) netdev: NetDev,
    /// The data of the module.
    pub(crate) shared: Arc<Shared>,
    /// Memory regions by STag.
    pub(crate) tpt: Arc<Tpt>,
    /// Queue pairs by number.
    pub(crate) qps: Arc<ObjTable<QpObj>>,
    /// Counters, except those of queue pairs.
    pub(crate) stats: Stats,
    /// Pages of memory on demand that the kernel has taken away and that are not counted yet.
    pub(crate) pages_taken: Arc<Atomic<u64>>,
    /// Counters of the core.
    #[pin]
    pub(crate) accounts: Mutex<Accounts>,
    /// Objects, counted against their limits.
    pub(crate) counts: Counts,
    /// Settings of new connections.
    #[pin]
    pub(crate) params: SpinLockIrq<Params>,
    /// Connections and listeners.
    #[pin]
    pub(crate) endpoints: cm::Endpoints,
    /// Listeners for queue pairs without a connection manager.
    #[pin]
    pub(crate) doors: cm::Doors,
    /// The devices of other hosts that this one has met without a connection manager.
    #[pin]
    pub(crate) lives: SpinLockIrq<Lives>,
    /// Number of the device, in the order of creation. A device that takes the place of another one
    /// has a higher number, so that peers know them apart.
    pub(crate) part_id: u32,
    /// Protection domains created so far; numbers the next one.
    pub(crate) pds: Atomic<u64>,
    /// First six bytes of [`Self::hw_gid`].
    #[pin]
    mac: SpinLockIrq<[u8; 6]>,
    /// The GIDs as the core was told them last. Orders the answers with the search for changes.
    #[pin]
    told_gids: Mutex<Gids>,
    /// The thread that adds the device to the core's clients, or added it last after a move to
    /// another namespace. 0: none.
    adder: Atomic<i32>,
    #[pin]
    files: SpinLockIrq<Option<Files>>,
    /// Ends connections whose local address is gone.
    #[pin]
    addr_check: DelayedWork<Device, 0>,
    /// Ends the probes of hosts that have come back.
    #[pin]
    probe_end: DelayedWork<Device, 1>,
    /// Listens where sessions need it.
    #[pin]
    attendance: DelayedWork<Device, 2>,
    /// Tells the core of changed GIDs.
    #[pin]
    gid_check: DelayedWork<Device, 3>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 0> for Device { self.addr_check }
}
impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Device { self.probe_end }
}
impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for Device { self.attendance }
}
impl_has_delayed_work! {
    impl HasDelayedWork<Self, 3> for Device { self.gid_check }
}

impl WorkItem<1> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.endpoints.slow_probes();
    }
}

impl WorkItem<2> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.doors.attend(&this).is_err() {
            let delay = msecs_to_jiffies(Deadline::Retry.ms());
            this.shared.cm.mod_delayed::<_, 2>(this.clone(), delay);
        }
    }
}

impl WorkItem<0> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.endpoints.abort_without_addr();
    }
}

impl Device {
    /// Creates and registers the device `name` for `ndev`.
    pub(crate) fn add(shared: Arc<Shared>, name: &CStr, ndev: &NetDev) -> Result {
        let mac = mac_of(ndev).unwrap_or_else(random_mac);
        let params = shared.params;
        let module = shared.module();
        let tpt = Tpt::new(shared.clone())?;
        let qps = Arc::pin_init(ObjTable::new(), GFP_KERNEL)?;
        let part_id = NEXT_PART_ID.fetch_add(1, Relaxed);
        let pages_taken = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let dev = Arc::pin_init(
            try_pin_init!(Self {
                netdev: ndev.clone(),
                shared,
                tpt,
                qps,
                stats: Stats::new(),
                pages_taken,
                accounts <- ranked_mutex!(Rank::Accounts, Accounts::new()),
                counts: Counts::new(),
                params <- ranked_spinlock!(Rank::Params, params),
                endpoints <- cm::Endpoints::new(),
                doors <- cm::Doors::new(),
                lives <- ranked_spinlock!(Rank::Lives, Lives::new()),
                part_id,
                pds: Atomic::new(0),
                mac <- ranked_spinlock!(Rank::Mac, mac),
                told_gids <- ranked_mutex!(Rank::ToldGids, NO_GIDS),
                adder: Atomic::new(0),
                files <- ranked_spinlock!(Rank::Files, None),
                addr_check <- new_delayed_work!("siw_addr_check"),
                probe_end <- new_delayed_work!("siw_probe_end"),
                attendance <- new_delayed_work!("siw_attendance"),
                gid_check <- new_delayed_work!("siw_gid_check"),
            }? Error),
            GFP_KERNEL,
        )?;
        let ns = ndev.net().ok_or(ENODEV)?;
        let cfg = DeviceConfig {
            net: Some(&ns),
            node_guid: eui48_to_guid(mac),
            node_desc: c"Software iWARP stack",
            num_comp_vectors: num_possible_cpus(),
        };
        let new = IbDevice::new(module, &cfg, dev.clone())?;
        new.set_netdev(ndev)?;
        new.register(name)?;
        // An address may have come or gone before the notifier found the device.
        dev.check_gids();
        dev.adder.write_once(0);
        Ok(())
    }

    /// True if this thread is adding the device to the core's clients.
    pub(crate) fn is_being_added(&self) -> bool {
        self.adder.read_once() == current!().pid()
    }

    /// Ends the device: waits for the readers of its debugfs files and for the end of its
    /// connections.
    pub(crate) fn gone(self: &Arc<Self>) {
        wq::cancel_delayed_sync::<_, 0>(self);
        wq::cancel_delayed_sync::<_, 3>(self);
        // The files go first, because the core has released the name already.
        let files = self.files.lock().take();
        drop(files);
        self.endpoints.drain();
        // No connection asks for probes any more, and there are no sessions.
        wq::cancel_delayed_sync::<_, 1>(self);
        wq::cancel_delayed_sync::<_, 2>(self);
        // There are no sessions, so this closes what is left.
        let _ = self.doors.attend(self);
    }

    /// Allocates an unused QP number. The caller enters it in `qps`.
    pub(crate) fn next_qpn(&self) -> Option<u32> {
        // There are fewer queue pairs than numbers, so one of these is unused.
        (0..=limits::QP)
            .map(|_| self.shared.draw_qpn())
            .find(|qpn| self.qps.get(*qpn).is_none())
    }

    /// Follows a change of the network device's hardware address.
    pub(crate) fn mac_changed(&self) {
        if let Some(mac) = mac_of(&self.netdev) {
            *self.mac.lock() = mac;
        }
    }

    /// Ends the connections of an address that the network device has lost, after a grace period.
    /// Any context.
    ///
    /// TCP survives if the address comes back, also on another interface. Otherwise packets find no
    /// route, and nothing reports that before TCP's time-out.
    pub(crate) fn check_addrs(self: &Arc<Self>) {
        let grace = msecs_to_jiffies(ADDR_GRACE_MS);
        self.shared.cm.mod_delayed::<_, 0>(self.clone(), grace);
    }

    /// Lets [`cm::Endpoints::slow_probes`] run after `delay`. Any context.
    pub(crate) fn slow_probes_in(self: &Arc<Self>, delay: Jiffies) {
        self.shared.cm.mod_delayed::<_, 1>(self.clone(), delay);
    }

    /// What this device tells its peers of itself.
    pub(crate) fn life(&self) -> Life {
        Life {
            device: u64::from_be_bytes(eui48_to_guid(*self.mac.lock())),
            boot_id: self.shared.boot_id,
            epoch: self.part_id,
        }
    }

    /// Has the device listen where sessions need it, now that their number or the addresses of the
    /// host have changed. Any context.
    pub(crate) fn attend_doors(self: &Arc<Self>) {
        self.shared.cm.mod_delayed::<_, 2>(self.clone(), 0);
    }
}

/// The first six bytes of the hardware address, unless they are zero.
fn mac_of(ndev: &NetDev) -> Option<[u8; 6]> {
    let addr = ndev.hw_addr();
    let bytes = addr.as_bytes();
    // The core takes a GID of zeros for none, and `lo` has such an address.
    if bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(bytes) {
        *to = *from;
    }
    Some(mac)
}

/// A substitute for a missing hardware address: the core needs a GID that is not zero.
fn random_mac() -> [u8; 6] {
    let mut mac = [0; 6];
    random::fill(&mut mac);
    let [first, ..] = &mut mac;
    // Unicast, locally administered.
    *first = (*first & 0xfe) | 0x02;
    mac
}

/// The version in the layout that libsiw expects.
fn fw_ver([major, minor, patch]: [u16; 3]) -> u64 {
    u64::from(major) << 32 | u64::from(minor) << 16 | u64::from(patch)
}

#[vtable]
impl Driver for Siw {
    /// `RDMA_DRIVER_SIW`: selects libsiw.
    const DRIVER_ID: u32 = abi::DRIVER_ID;
    const ABI_VERSION: u32 = abi::ABI_VERSION;
    const NODE_TYPE: NodeType = NodeType::Rnic;
    const PROTOCOL: Protocol = Protocol::Iwarp;
    /// Otherwise a program with many queues would get the key that libsiw takes for none.
    const MMAP_MIN_KEY: u64 = abi::INVAL_UOBJ_KEY + 1;
    const COUNTERS: &'static [&'static CStr] = stats::NAMES;
    const SETTINGS: &'static [Setting<DeviceRef>] = params::SETTINGS;

    type Data = DeviceRef;
    type Ucontext = Ucontext;
    type Pd = Pd;
    type Cq = Cq;
    type Qp = Qp;
    type Srq = Srq;
    type Mr = Mr;
    type Mw = Mw;
    type Iwcm = Self;

    fn query_device(dev: &IbDevice) -> DeviceAttr {
        let mac = *dev.mac.lock();
        DeviceAttr {
            vendor_id: VENDOR_ID,
            vendor_part_id: dev.part_id,
            fw_ver: fw_ver(VERSION),
            sys_image_guid: eui48_to_guid(mac),
            max_mr_size: u64::MAX,
            page_size_cap: PAGE_SIZE as u64,
            mem_mgt_extensions: true,
            mem_window: true,
            mem_window_2b: true,
            allow_user_unreg: true,
            on_demand: true,
            max_qp: limits::QP,
            max_qp_wr: limits::QP_WR,
            max_send_sge: limits::SGE,
            max_recv_sge: limits::SGE,
            max_sge_rd: limits::SGE_RD,
            max_cq: limits::CQ,
            max_cqe: limits::CQE,
            max_mr: limits::MR,
            max_mw: limits::MW,
            max_pd: limits::PD,
            max_srq: limits::SRQ,
            max_srq_wr: limits::SRQ_WR,
            max_srq_sge: limits::SGE,
            // Reads that a QP may serve, and may have outstanding.
            max_qp_rd_atom: limits::IRD,
            max_qp_init_rd_atom: limits::ORD,
            max_res_rd_atom: limits::QP * limits::IRD,
            max_fast_reg_page_list_len: limits::FAST_REG_PAGES,
            sg_gaps_reg: true,
            ..Default::default()
        }
    }

    fn query_port(dev: &IbDevice) -> Result<PortAttr> {
        let (speed, width) = dev.eth_speed()?;
        let ndev = dev.netdev().ok_or(ENODEV)?;
        Ok(PortAttr {
            active: port_active(&ndev),
            max_mtu: ndev.max_mtu(),
            active_mtu: ndev.mtu(),
            gid_tbl_len: limits::GIDS,
            max_msg_sz: u32::MAX,
            speed,
            width,
            cap_flags: port_cap::CM_SUP | port_cap::DEVICE_MGMT_SUP,
        })
    }

    fn query_gid(dev: &IbDevice, index: usize) -> Result<[u8; 16]> {
        Device::read_gid(dev, index)
    }

    fn fw_version(_dev: &IbDevice, w: &mut dyn Write) -> core::fmt::Result {
        let [major, minor, patch] = VERSION;
        write!(w, "{major}.{minor}.{patch}")
    }

    fn counter_values(dev: &IbDevice, of: Option<u32>, values: &mut [u64]) {
        dev.counter_values(of, values);
    }

    fn traffic(dev: &IbDevice) -> Traffic {
        dev.traffic()
    }

    fn bind_counter(qp: &QpObj, id: Option<u32>) -> Result<u32> {
        qp.dev.bind_counter(qp, id)
    }

    fn unbind_counter(qp: &QpObj) {
        qp.dev.unbind_counter(qp);
    }

    fn close_counter(dev: &IbDevice, id: u32) {
        dev.close_counter(id);
    }

    fn enable_driver(dev: &IbDevice) {
        dev.adder.write_once(current!().pid());
    }

    fn coming(dev: &IbDevice) {
        dev.endpoints.admit();
    }

    fn named(dev: &IbDevice, name: DeviceName<'_>) {
        // The old folder goes first, because its name may be the same.
        let old = dev.files.lock().take();
        drop(old);
        // The device works without its debugfs files.
        let files = Files::new(&dev.shared.debugfs, name, dev).ok();
        *dev.files.lock() = files;
    }

    fn going(dev: &IbDevice) {
        // An orderly close would let each connection take as long as its peer likes.
        dev.endpoints.abort_all();
    }

    fn dealloc_driver(dev: &IbDevice) {
        dev.gone();
    }
}
