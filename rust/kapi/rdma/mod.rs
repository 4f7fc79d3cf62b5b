// SPDX-License-Identifier: GPL-2.0

//! RDMA providers.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)
//!
//! A provider implements [`Driver`] on a marker type. Objects that the core allocates carry the
//! provider's payload behind the C structure ([`Object`](object::Object)); so do the device
//! ([`Device`]) and memory regions ([`Mr`]).
//!
//! A function sleeps only if its description says so; softirq may call all others.

mod attr;
mod client;
mod cm;
mod details;
mod device;
mod gate;
mod link;
mod mem;
mod mmap;
mod mr;
mod object;
mod ops;
mod page_layout;
mod ring;
mod setting;
mod table;
mod text;
mod udata;
mod umem;
mod vtable;
mod wc;
mod wr;

pub(crate) use self::{
    attr::*,
    client::Notice,
    cm::{CmEvent, CmId, ConnParam},
    details::Details,
    device::{
        eui48_to_guid, num_possible_cpus, port_active, Device, DeviceConfig, DriverRegistration,
        NodeType, PortEvent, Protocol,
    },
    gate::InUse,
    link::{LinkOps, LinkRegistration},
    mem::{Backing, DmaGrant, PageList, SgList},
    mmap::{MmapEntry, RingMem},
    mr::{Mr, NewMr},
    object::{Cq, CqEvent, Customer, New, ObjId, Pd, Qp, QpEvent, Srq, SrqEvent, Ucontext},
    ops::Driver,
    ring::{CtrlWord, RingElem, UserRing},
    setting::Setting,
    table::{ObjTable, RcuArc, RcuTable},
    udata::Udata,
    umem::{ReleaseQueue, Umem},
    wc::{Wc, WcOpcode, WcOut, WcStatus},
    wr::{send_flags, RecvWr, RecvWrs, SendOp, SendWr, SendWrs, Sge},
};
pub(crate) use super::bindings::{ib_cq, ib_pd, ib_qp, ib_srq, ib_ucontext};
