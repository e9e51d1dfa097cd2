// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ethernet frames through DPDK, without the kernel.
//!
//! DPDK itself is in a plug-in, `librmpi_dpdk.so`. `cargo xtask install` builds it from `shim/` if DPDK is installed,
//! and a process loads it when a device is configured. So programs built with this crate also run without DPDK. A
//! second plug-in, `librmpi_dpdk_xdp.so`, is for AF_XDP: it needs libraries that not every host has.
//!
//! **Knows** the functions of the plug-in (`shim/rmpi_dpdk.h`), how to start DPDK inside another program, and how to
//! send and receive bursts of frames.
//! **Never** interprets a frame.
//!
//! # Lent memory
//! The payload of a frame can stay in the program's memory ([`DpdkPort::lend`], [`DpdkPort::attach`]): the device reads
//! it there. The program may unmap or reuse the memory only after [`DpdkPort::take_back`] has returned.
//!
//! # Start
//! DPDK can be started only once in a process ([`start`]), and expects to own the program. Here it gets no worker
//! threads, does not change the caller's affinity, prints nothing (its message is in the returned error), and leaves no
//! files behind (`--no-shconf`, `--in-memory`). Its memory is ordinary pages, or huge pages if the port is configured
//! so.
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
