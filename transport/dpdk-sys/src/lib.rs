// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ethernet frames through DPDK, without the kernel.
//!
//! DPDK itself is in a plug-in, `librmpi_dpdk.so`, that `cargo xtask install` builds from `shim/` where DPDK is
//! installed, and that a process loads when a device is configured. There are two: the one for AF_XDP,
//! `librmpi_dpdk_xdp.so`, needs libraries that not every host has. So programs built with this crate also run without
//! DPDK.
//!
//! **Knows** the functions of the plug-in (`shim/rmpi_dpdk.h`), how to start DPDK inside another program, and bursts.
//! **Never** interprets a frame.
//!
//! # Lent memory
//! The payload of a frame can stay in the program's memory ([`DpdkPort::lend`], [`DpdkPort::attach`]): the device reads
//! it there. The program may reuse the memory after [`DpdkPort::take_back`] has returned, not earlier.
//!
//! # Start
//! DPDK can be started once in a process ([`start`]), and expects to own the program. Here it gets no worker threads,
//! leaves the caller's affinity alone, prints nothing (its message about a failure is in the error), and leaves no
//! files behind (`--no-shconf`). Its memory is ordinary pages, or huge ones if the port is configured so.
//!
//! # Threads
//! A [`DpdkPort`] has one owner; it may move to another thread.

mod start;

mod lent;
mod port;
mod table;

pub use lent::{InPlaceMemory, LentPart, Loan};
pub use port::{DpdkPort, InPlace};
pub use start::{FrameMemory, available, is_on_bus, start};
pub use table::DpdkPortAttr;
