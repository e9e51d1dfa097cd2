// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection to the server of another launcher, over PMI or PMIx. Processes of a job exchange data through the
//! server's key-value store.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Error;

/// A connection to the process manager's server.
#[derive(Debug)]
pub(crate) enum PmiClient {
    /// Over a socket.
    Pmi(pmi::Client),
    /// Through the PMIx library.
    Pmix(Box<pmix::Client>),
}

impl PmiClient {
    pub(crate) fn rank(&self) -> u32 {
        match self {
            Self::Pmi(client) => client.rank(),
            Self::Pmix(client) => client.rank(),
        }
    }

    pub(crate) fn size(&self) -> u32 {
        match self {
            Self::Pmi(client) => client.size(),
            Self::Pmix(client) => client.size(),
        }
    }

    /// Index of this process's program on the command line.
    pub(crate) fn app(&self) -> u32 {
        match self {
            Self::Pmi(client) => client.app(),
            Self::Pmix(client) => client.app(),
        }
    }

    /// The launcher's name of the job, unique among all jobs that run on a host at the same time.
    pub(crate) fn job(&self) -> String {
        match self {
            Self::Pmi(client) => client.job().to_owned(),
            Self::Pmix(client) => client.job(),
        }
    }

    /// Stores a value of this rank for the other ranks.
    pub(crate) fn put(&mut self, item: &str, value: &str) -> Result<(), Error> {
        let key = key(self.rank(), item);
        match self {
            Self::Pmi(client) => client.put(&key, value).map_err(failed),
            Self::Pmix(client) => client.put(&key, value).map_err(failed),
        }
    }

    /// A value that rank `rank` stored before the last fence; `None`: it stored none.
    pub(crate) fn get(&mut self, rank: u32, item: &str) -> Result<Option<String>, Error> {
        let key = key(rank, item);
        match self {
            Self::Pmi(client) => client.get(&key).map_err(failed),
            Self::Pmix(client) => client.get(rank, &key).map_err(failed),
        }
    }

    /// Enters a fence (barrier) of all ranks of the job.
    pub(crate) fn begin_fence(&mut self) -> Result<(), Error> {
        match self {
            Self::Pmi(client) => client.begin_fence().map_err(failed),
            Self::Pmix(client) => client.begin_fence().map_err(failed),
        }
    }

    /// Whether all ranks have entered the fence; never blocks.
    pub(crate) fn is_fence_over(&mut self) -> Result<bool, Error> {
        match self {
            Self::Pmi(client) => client.is_fence_over().map_err(failed),
            Self::Pmix(client) => client.is_fence_over().map_err(failed),
        }
    }

    /// Waits until the server sends something, or a rank connects to `listener`. If the server is reached through a
    /// library, which cannot wake this process, the wait is short.
    pub(crate) fn rest(&self, listener: Option<BorrowedFd<'_>>) {
        let mut sources: Vec<PollFd<'_>> = Vec::with_capacity(2);
        sources.extend(listener.map(|listener| PollFd::from_borrowed_fd(listener, PollFlags::IN)));
        let patience = match self {
            Self::Pmi(client) => {
                let server = client.as_fd();
                sources.push(PollFd::from_borrowed_fd(server, PollFlags::IN));
                None
            }
            Self::Pmix(_) => Some(POLL_INTERVAL),
        };
        // The result does not matter, because the caller polls again.
        let _ = poll(&mut sources, patience.as_ref());
    }

    /// Ends the job.
    pub(crate) fn abort(&mut self, code: i32, message: &str) -> Result<(), Error> {
        match self {
            Self::Pmi(client) => client.abort(code, message).map_err(failed),
            Self::Pmix(client) => client.abort(code, message).map_err(failed),
        }
    }

    /// Leaves the job.
    pub(crate) fn finalize(&mut self) -> Result<(), Error> {
        match self {
            Self::Pmi(client) => client.finalize().map_err(failed),
            Self::Pmix(client) => client.finalize().map_err(failed),
        }
    }
}

fn key(rank: u32, item: &str) -> String {
    format!("rmpi-{rank}-{item}")
}

#[allow(clippy::needless_pass_by_value, reason = "it is mapped over")]
fn failed(error: impl std::fmt::Display) -> Error {
    Error::Boot(error.to_string())
}

/// Time between two polls of a server that is reached through a library: its replies come in a thread of the library.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000,
};
