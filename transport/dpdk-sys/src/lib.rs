// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of Ethernet by DPDK, without the kernel.
//!
//! DPDK itself is in a plug-in, `librmpi_dpdk.so`, that `cargo xtask install` builds from `shim/` where DPDK is installed, and that a
//! process opens when a device is configured. There are two: that for AF_XDP, `librmpi_dpdk_xdp.so`, needs libraries that not every
//! host has. So whatever is built with this crate also runs where there is no DPDK.
//!
//! **Knows** the functions of the plug-in (`shim/rmpi_dpdk.h`), how DPDK is started in a process that is not its own, and bursts.
//! **Never** looks into a frame.
//!
//! # Memory that is lent
//! What a frame carries can stay where the program has it ([`DpdkPort::lend`], [`DpdkPort::attach`]): the device reads it there. It is the
//! program's again when [`DpdkPort::take_back`] has returned, and not earlier.
//!
//! # Start
//! DPDK can be started once in a process ([`start`]), and expects that the program is its own. Here it gets no worker threads, leaves
//! the caller's affinity alone, prints nothing (what it says of a failure is
//! in the error), and makes no files that stay (`--no-shconf`). Its memory is ordinary pages,
//! or huge ones if the port asks for them.
//!
//! # Threads
//! A [`DpdkPort`] belongs to whoever made it; it may go to another thread.

mod start;

mod lent;
mod port;
mod table;

pub use lent::{LentMemory, LentPart, Loan};
pub use port::{DpdkPort, InPlace};
pub use start::{FrameMemory, available, is_on_bus, start};
pub use table::DpdkPortAttr;
