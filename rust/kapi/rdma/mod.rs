// SPDX-License-Identifier: GPL-2.0

//! RDMA providers.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)
//!
//! A provider implements [`Driver`] on a marker type, which names the payloads of the objects. Each
//! object of the core has a module: [`ucontext`], [`pd`], [`cq`], [`qp`], [`srq`], [`mr`] and
//! [`mw`]; so have connections, [`iwcm`]. It contains the type, its attributes, the operations that
//! the payload implements, and the callbacks that call them.
//!
//! Objects that the core allocates carry the payload behind the C structure
//! ([`Object`](object::Object)); so do the device ([`Device`]) and memory regions ([`Mr`]).
//!
//! A function sleeps only if its description says so; softirq may call all others.

mod att;
mod callback;
pub(crate) mod cq;
mod details;
mod device;
mod dmabuf;
mod gate;
pub(crate) mod iwcm;
mod link;
mod mem;
mod mmap;
pub(crate) mod mr;
pub(crate) mod mw;
mod object;
pub(crate) mod odp;
mod ops;
mod page_layout;
mod page_list;
pub(crate) mod pd;
mod programs;
pub(crate) mod qp;
mod registration;
mod ring;
mod setting;
pub(crate) mod srq;
mod table;
mod text;
pub(crate) mod ucontext;
mod udata;
mod umem;
mod wc;
mod wr;

pub(crate) use self::{
    att::Translation,
    cq::Cq,
    details::Details,
    device::{
        eui48_to_guid, num_possible_cpus, port_active, port_cap, Device, DeviceAttr, DeviceConfig,
        DeviceName, Driver, NodeType, PortAttr, PortEvent, Protocol, Traffic,
    },
    gate::InUse,
    link::{LinkOps, LinkRegistration},
    mem::Backing,
    mmap::{MmapEntry, RingMem},
    mr::{Advice, DmaGrant, Mr, SgList},
    mw::Mw,
    object::ObjId,
    odp::OdpUmem,
    page_list::PageList,
    pd::Pd,
    programs::Programs,
    qp::Qp,
    registration::DriverRegistration,
    ring::{CtrlWord, RingElem, UserRing},
    setting::Setting,
    srq::Srq,
    table::{ObjTable, RcuArc, RcuTable},
    ucontext::Customer,
    udata::Udata,
    umem::Umem,
    wc::{Wc, WcOpcode, WcOut, WcStatus, WcWith},
    wr::{send_flags, RecvWr, RecvWrs, SendOp, SendWr, SendWrs, Sge},
};
