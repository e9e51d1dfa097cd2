// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of ranks for debuggers that may not open it themselves. Where the Yama module restricts tracing to
//! ancestors (`kernel.yama.ptrace_scope` is 1), this daemon is one, and the descriptor of `/proc/PID/mem` that it
//! opens can be read by any process that receives it: the kernel checks permission only at open.
//!
//! The descriptor is read-only, and is sent to a peer that has the same user id or root's ([`Daemon::admit`]) and
//! presents the job's key, which only those users can read: it is in the environment of the ranks.

use super::{Daemon, control};
use std::fs::File;
use std::os::fd::AsFd;

impl Daemon {
    /// Serves a visitor's request for the memory of a rank. It may send further requests.
    pub(super) fn serve_memory(&mut self, number: u32, rank: u32, job: u64) {
        let Some(visitor) = self.visitors.get(&number) else {
            return;
        };
        match self.memory_of(rank, job) {
            Ok((pid, memory)) => {
                // If the socket is full, the visitor repeats its request.
                let _ = control::send_memory(visitor.as_fd(), pid, &memory.into());
            }
            Err(why) => self.dismiss(number, &why),
        }
    }

    /// The pid of a rank, of its MPI process if it is in MPI, and its memory.
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
