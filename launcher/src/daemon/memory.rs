// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of ranks, for debuggers that may not open it themselves. Where the Yama module lets only ancestors trace a
//! process (`kernel.yama.ptrace_scope` is 1), this daemon is one, and the descriptor of `/proc/PID/mem` that it opens may be
//! read by whoever gets it: the system asks at the opening alone.
//!
//! It is given, for reading only, to who connects as the same user or root ([`Daemon::admit`]) and knows the job's key, which
//! stands where only they can read it: in the environment of the ranks.

use super::{Daemon, control};
use std::fs::File;
use std::os::fd::AsFd;

impl Daemon {
    /// A visitor asks for the memory of a rank. It may ask for more.
    pub(super) fn show_memory(&mut self, number: u32, rank: u32, job: u64) {
        let Some(visitor) = self.visitors.get(&number) else {
            return;
        };
        match self.memory_of(rank, job) {
            Ok((pid, memory)) => {
                // One that does not take the answer will ask again.
                let _ = control::send_memory(visitor.as_fd(), pid, &memory.into());
            }
            Err(why) => self.dismiss(number, &why),
        }
    }

    /// The process of a rank that is in MPI, or that was started, and its memory.
    fn memory_of(&self, rank: u32, job: u64) -> Result<(u32, File), String> {
        let local = self.local_of(rank).filter(|_| job == self.job.keys.job);
        let found = local.and_then(|local| self.ranks.get(local as usize));
        let found = found.ok_or("there is no such rank, or the key is that of another job")?;
        if !found.alive {
            return Err(format!("rank {rank} has ended"));
        }
        let pid = match found.greeter {
            0 => found.pid,
            greeter => greeter,
        };
        let memory = File::open(format!("/proc/{pid}/mem"));
        let memory =
            memory.map_err(|why| format!("cannot open the memory of rank {rank}: {why}"))?;
        Ok((pid, memory))
    }
}
