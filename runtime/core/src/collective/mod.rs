// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking collectives over point-to-point (MPI 5.0 chapter 6), on dense bytes: the C layer packs where it must.
//!
//! Every algorithm is a pure function of the number of ranks, the root and the sizes, so all ranks choose alike. The
//! messages of a collective travel in the communicator's second context; ranks enter collectives in the same order, and
//! messages between two ranks keep theirs, so one tag is enough.

mod gather;
mod reduce;
mod tree;

pub use gather::{allgather, alltoall, gather, scatter};
pub use reduce::{Reducer, allreduce, reduce};
pub use tree::{barrier, bcast};

use engine::Peer;

use crate::comm::Comm;
use crate::p2p::{Mode, Source, Target};
use crate::{Error, RequestId, UserMemory, Visit};

/// The ranks of a communicator, as a collective talks to them. All calls block.
pub(crate) struct Line<'a, V> {
    visit: V,
    comm: &'a Comm,
}

impl<'a, V: Visit> Line<'a, V> {
    pub(crate) fn new(visit: V, comm: &'a Comm) -> Self {
        Self { visit, comm }
    }

    pub(crate) fn rank(&self) -> u32 {
        self.comm.rank
    }

    pub(crate) fn size(&self) -> u32 {
        self.comm.size()
    }

    pub(crate) fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Error> {
        let request = self.start_send(to, bytes)?;
        self.finish(request)
    }

    pub(crate) fn receive(&self, from: u32, bytes: &mut [u8]) -> Result<(), Error> {
        let request = self.start_receive(from, bytes)?;
        self.finish(Some(request))
    }

    /// Sends to one rank while receiving from another.
    pub(crate) fn exchange(
        &self,
        to: u32,
        out: &[u8],
        from: u32,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let receive = self.start_receive(from, into)?;
        let send = self.start_send(to, out)?;
        // Both end before this returns, so both slices are borrowed long enough.
        let received = self.finish(Some(receive));
        self.finish(send).and(received)
    }

    fn start_send(&self, to: u32, bytes: &[u8]) -> Result<Option<RequestId>, Error> {
        let target = Target {
            context: self.comm.collective_context(),
            peer: self.peer(to),
            tag: TAG,
        };
        self.visit
            .visit(|universe| universe.send(target, UserMemory::of_const(bytes), Mode::Standard))
    }

    fn start_receive(&self, from: u32, bytes: &mut [u8]) -> Result<RequestId, Error> {
        let source = Source {
            context: self.comm.collective_context(),
            peer: Some(self.peer(from)),
            tag: Some(TAG),
        };
        self.visit
            .visit(|universe| universe.receive(source, UserMemory::of(bytes)))
    }

    fn finish(&self, request: Option<RequestId>) -> Result<(), Error> {
        let Some(request) = request else {
            return Ok(());
        };
        self.visit.wait_for(request);
        let status = self.visit.visit(|universe| universe.collect(request));
        status.error.map_or(Ok(()), Err)
    }

    fn peer(&self, rank: u32) -> Peer {
        self.comm
            .group
            .peer(rank)
            .expect("collectives compute ranks of the communicator")
    }
}

const TAG: i32 = 0;
