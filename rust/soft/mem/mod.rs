// SPDX-License-Identifier: GPL-2.0

//! Memory of consumers, and rings that programs map.

pub mod att;
pub mod backing;
mod dmabuf;
pub mod gate;
pub mod odp;
mod page_layout;
pub mod page_list;
pub mod programs;
pub mod ring;
pub mod umem;

pub use page_layout::Order;
