// SPDX-License-Identifier: GPL-2.0

//! Abstractions of the RDMA core for providers.
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

mod callback;
pub mod cq;
mod details;
mod device;
pub mod iwcm;
mod link;
mod mmap;
pub mod mr;
pub mod mw;
pub mod object;
mod ops;
pub mod pd;
pub mod qp;
mod registration;
mod setting;
pub mod srq;
mod text;
pub mod ucontext;
mod udata;
mod wc;
mod wr;

#[cfg(linux_since_7_3)]
use base::version::LocalModule;

/// The prefix of this crate's messages: the name of the module that it is a part of.
const __LOG_PREFIX: &[u8] = concat!(env!("MODULE_NAME"), "\0").as_bytes();

pub use self::{
    cq::Cq,
    details::Details,
    device::{
        eui48_to_guid, num_possible_cpus, port_active, port_cap, Device, DeviceAttr, DeviceConfig,
        DeviceName, Driver, NodeType, PortAttr, Protocol, Traffic,
    },
    link::{LinkOps, LinkRegistration},
    mmap::{MmapEntry, RingMem},
    mr::{Advice, DmaGrant, Mr, SgList},
    mw::Mw,
    object::ObjId,
    pd::Pd,
    qp::Qp,
    registration::DriverRegistration,
    setting::Setting,
    srq::Srq,
    ucontext::Customer,
    udata::Udata,
    wc::{Wc, WcOpcode, WcOut, WcStatus, WcWith},
    wr::{send_flags, RecvWr, RecvWrs, SendOp, SendWr, SendWrs, Sge},
};
