// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protocols between a rank and the daemon of its node, and between `rmpi-queues` and the front of a job ([`query`]).
//! This crate only encodes and decodes messages; it opens no descriptor.
//!
//! **Knows** the environment variable [`BOOT_VARIABLE`] and the datagrams of the control socket.
//! **Never** makes a system call, reads a clock or the environment, or panics over bytes that another process wrote.
//!
//! # Life cycle of a rank
//! 1. The daemon starts the program with [`Boot`] as the text of [`BOOT_VARIABLE`], one end of a `SOCK_SEQPACKET`
//!    pair and the sealed `memfd` of the node segment.
//! 2. `MPI_Init` parses the text and sends [`ToDaemon::Hello`] on the socket. If the process exits after that without
//!    [`ToDaemon::Finalized`], the rank has failed.
//! 3. A rank whose descriptors were closed by a wrapper connects (`SOCK_SEQPACKET`) to the abstract socket
//!    [`Boot::address`] and sends [`ToDaemon::AskSegment`]; the daemon checks the peer's user and the job's key and
//!    replies with [`ToRank::Segment`] and the descriptor, or with [`ToRank::Refused`]. From then on this connection is
//!    the rank's control socket.
//! 4. A rank may run several MPI programs one after the other. After [`ToDaemon::Finalized`] each program calls
//!    `shutdown` for writing on its control socket, which affects all copies of the descriptor. So the next program
//!    cannot use the inherited socket and proceeds as in step 3; it receives a new segment, which the next programs of
//!    all the node's ranks share.
//! 5. A rank that uses a network sets a flag in its hello, and sends [`ToDaemon::Publish`] once its network address is
//!    known. It sends [`ToDaemon::LookUp`] before its first message to another rank; the daemon replies with
//!    [`ToRank::Record`] as soon as that rank has published, or with [`ToRank::NoRecord`] if that rank will never
//!    publish. No rank waits for records in `MPI_Init`. A record belongs to one of the MPI programs that its rank runs
//!    (step 4). The daemon sends it to ranks that run the program of the same number, even after the record's rank has
//!    finalized, until all ranks are quiet in that program.
//! 6. Network messages are acknowledged by the receiver, and an acknowledgement may be lost. So in `MPI_Finalize` a
//!    rank sends [`ToDaemon::Quiet`] when none of its messages is unacknowledged, and continues to acknowledge until it
//!    receives [`ToRank::AllQuiet`].
//! 7. End of file on the rank's side of the control socket means that the daemon is gone. `ECONNRESET` means the same;
//!    the kernel reports it when the daemon has ended with unread messages.
//!
//! ```
//! use wireup::{Boot, ToDaemon};
//! let boot = Boot::parse(
//!     "1 job=9f rank=3 size=64 local_rank=3 local_size=64 app=0 segment=5 control=6 \
//!      address=rmpi-9f daemon=4711 mask=3",
//! )?;
//! let hello = ToDaemon::Hello { rank: boot.rank, pid: 4720, publishes: false };
//! assert_eq!(ToDaemon::decode(&hello.encode()), Ok(hello));
//! # Ok::<(), wireup::BootError>(())
//! ```
//!
//! Threads: all values are plain data. Units: bytes.
#![forbid(unsafe_code)]

mod boot;
mod launch;
mod message;
mod node_map;
pub mod query;
mod ranks;
mod record;

pub use boot::{BOOT_VARIABLE, Boot, BootError, JobStreamKey};
pub use launch::Launch;
pub use message::{DecodeError, MAX_DATAGRAM_BYTES, ToDaemon, ToRank};
pub use node_map::{ByNode, NodeMap};
pub use ranks::Ranks;
pub use record::{MAX_RECORD_BYTES, Record};

/// Parses a port range `FIRST-LAST`, the value of `RMPI_PORT_RANGE`, which limits the ports on which a job listens.
#[must_use]
pub fn port_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first != 0 && first <= last).then_some((first, last))
}
