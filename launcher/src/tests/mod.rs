// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with ten thousand simulated hosts: a job of 640,000 ranks runs from its command line to its end, with the real
//! code of the front and of every shepherd.
//!
//! Real code: the front's handling of its command line, its messages to and from the nodes, its process table for
//! debuggers, every shepherd's decisions ([`ShepherdTree`](crate::shepherd::tree::ShepherdTree)), send buffers, all
//! messages and their encoding, and the daemons' records. Simulated: processes, remote shells, clocks and ranks; module
//! `hosts` has the simulation.

pub(crate) mod chance;
mod heap;
mod hosts;
mod scale;
