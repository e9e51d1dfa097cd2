// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives debuggers access to the memory of ranks if they have no permission to open it themselves. The Yama module may
//! restrict tracing to ancestors (`kernel.yama.ptrace_scope` is 1). This daemon is an ancestor of the ranks, so it can
//! open `/proc/PID/mem`. Any process that receives the descriptor can read from it, since the kernel checks permission
//! only at open.
//!
//! The descriptor is read-only. It is sent only to a peer whose user is this user or root ([`Daemon::admit`]) and which
//! presents the job's key. Only these users can read the key, which is in the environment of the ranks.

use super::{Daemon, control};
use std::fs::File;
use std::os::fd::AsFd;

impl Daemon {
    /// Replies to a request for the memory of rank `rank`, from the peer of pending connection `number`. `job`: the
    /// job's key, as presented by the peer. The connection stays open for further requests, unless this request is
    /// refused.
    pub(super) fn serve_memory(&mut self, number: u32, rank: u32, job: u64) {
        let Some(stream) = self.pending_streams.get(&number) else {
            return;
        };
        match self.memory_of(rank, job) {
            Ok((pid, memory)) => {
                // If the socket is full, the peer repeats its request.
                let _ = control::send_memory(stream.as_fd(), pid, &memory.into());
            }
            Err(why) => self.dismiss(number, &why),
        }
    }

    /// The pid and the memory of a rank's process: the process that called `MPI_Init` or, if none has, the process that
    /// the daemon started.
    fn memory_of(&self, rank: u32, job: u64) -> Result<(u32, File), String> {
        let local = self.local_of(rank).filter(|_| job == self.job.keys.job);
        let found = local.and_then(|local| self.ranks.get(local as usize));
        let found = found.ok_or("there is no such rank, or the key is that of another job")?;
        if !found.alive {
            return Err(format!("rank {rank} has ended"));
        }
        let pid = match found.mpi_pid {
            0 => found.pid,
            mpi_pid => mpi_pid,
        };
        let memory = File::open(format!("/proc/{pid}/mem"));
        let memory =
            memory.map_err(|why| format!("cannot open the memory of rank {rank}: {why}"))?;
        Ok((pid, memory))
    }
}
