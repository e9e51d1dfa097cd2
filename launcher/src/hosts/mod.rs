// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines the hosts of a job, and assigns ranks to them. Has no side effects, except that it reads the host file
//! and this machine's identity.
//!
//! Hosts are identified by their number in [`JobHosts::list`]. A host may report another host name than the name on the
//! command line, so reported names are only displayed. Names are never truncated at dots.
//!
//! - `remote_shell::word` parses one word of `--host`, and `file` parses host files. `merge` combines hosts that are
//!   named several times.
//! - `select` determines the hosts from the command line.
//! - `distribute` computes the host of each rank, once all slots are known; `resolve` completes the request.
//! - `machine` detects hosts that are the same machine, once the hosts have reported their facts.
//! - `map` formats the result as a table. `options` defines the command line options.

mod distribute;
mod file;
mod machine;
pub(crate) mod map;
mod merge;
mod options;
mod resolve;
mod select;

pub use distribute::{ProgramRanks, deal, loads};
pub(crate) use machine::{ColocatedRanks, HostMachine};
pub(crate) use machine::{colocated_ranks, describe_shared, slots};
pub use options::Heartbeat;
pub(crate) use options::HostOptions;
pub(crate) use select::{HostSource, are_all_local, find};

/// A host on which ranks may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobHost {
    /// Name as the user wrote it; an IPv6 address without brackets.
    pub name: String,
    /// User name on the host; `None` if no user name is given.
    pub user: Option<String>,
    /// Port of the host's remote shell, if not the default.
    pub port: Option<u16>,
    /// Slots: the number of ranks that the host gets before all hosts are full.
    pub slots: Slots,
    /// Maximum number of ranks that the host may get (`max_slots`); `None` without a limit.
    pub most: Option<u32>,
    /// Whether the host is this machine, according to the batch system.
    pub is_own: bool,
}

/// The slots of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slots {
    /// This number.
    Number(u32),
    /// One per available core, which the host reports at the start.
    Cores,
}

impl JobHost {
    /// Whether the host is this machine; then no remote shell is needed. `own`: the host name of this machine. A host
    /// with a user or a port counts as another system (for example a container), even if its name is this machine's.
    #[must_use]
    pub fn is_here(&self, own: &str) -> bool {
        let names = ["localhost", "127.0.0.1", "::1", own];
        let is_named = self.is_own || names.contains(&self.name.as_str());
        self.user.is_none() && self.port.is_none() && is_named
    }
}

/// The hosts of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobHosts {
    /// The hosts, each once, in the order of their first mention.
    pub list: Vec<JobHost>,
    /// Requirements of each program.
    pub claims: Vec<Claim>,
    /// `--ranks-per-node`: overrides the slots of all hosts.
    pub per_host: Option<u32>,
    /// Whether more ranks than slots are an error.
    pub is_strict: bool,
    /// Value of `--gdb`, which is parsed when the number of ranks is known.
    pub(crate) gdb: Option<String>,
    /// The host of each rank; empty until all slots are known.
    pub rank_hosts: Vec<u32>,
}

/// Requirements of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claim {
    /// Value of `-n`; `None` means one rank per slot of the program's hosts.
    pub ranks: Option<u32>,
    /// The hosts of the program's `--host`; `None` means all hosts.
    pub hosts: Option<Vec<HostShare>>,
}

/// A host, or some of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostShare {
    /// Number of the host.
    pub host: u32,
    /// Number of its slots; `None` for all.
    pub slots: Option<u32>,
}

impl JobHosts {
    /// The slots of all hosts; `None` if some are unknown. `cores`: the number of cores of every host, if it is known.
    #[must_use]
    pub fn slots(&self, cores: Option<u32>) -> Option<Vec<u32>> {
        let known = |host: &JobHost| match (self.per_host, host.slots) {
            (Some(number), _) | (None, Slots::Number(number)) => Some(number),
            (None, Slots::Cores) => cores,
        };
        self.list.iter().map(known).collect()
    }

    /// The host of each rank, for hosts with these slots and programs with these numbers of ranks.
    #[must_use]
    pub fn deal(
        &self,
        slots: &[u32],
        ranks: &[u32],
        mapping: crate::affinity::Mapping,
    ) -> Vec<u32> {
        let slots: Vec<u32> = slots
            .iter()
            .map(|own| self.per_host.unwrap_or(*own))
            .collect();
        let programs = ranks.iter().zip(&self.claims);
        let programs: Vec<ProgramRanks<'_>> = programs
            .map(|(ranks, claim)| ProgramRanks {
                ranks: *ranks,
                hosts: claim.hosts.as_deref(),
            })
            .collect();
        deal(&slots, &programs, mapping)
    }

    /// The default number of ranks of a program: one for each slot that it may use.
    #[must_use]
    pub fn counted(&self, slots: &[u32], claim: &Claim) -> u32 {
        let of = |host: u32, own: Option<u32>| {
            let all = || slots.get(host as usize).copied().unwrap_or(1);
            self.per_host.or(own).unwrap_or_else(all).max(1)
        };
        let number = match &claim.hosts {
            Some(parts) => parts
                .iter()
                .map(|part| u64::from(of(part.host, part.slots)))
                .sum(),
            None => (0..)
                .zip(&self.list)
                .map(|(host, _)| u64::from(of(host, None)))
                .sum::<u64>(),
        };
        u32::try_from(number).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> JobHost {
        JobHost {
            name: name.to_owned(),
            user: None,
            port: None,
            slots: Slots::Cores,
            most: None,
            is_own: false,
        }
    }

    #[test]
    fn only_exact_host_names_are_local() {
        for name in ["localhost", "127.0.0.1", "::1", "n1.lab"] {
            assert!(host(name).is_here("n1.lab"), "{name}");
        }
        for name in [
            "n1",
            "n1.lab.",
            "N1.lab",
            "127.0.0.2",
            "localhost.localdomain",
        ] {
            assert!(!host(name).is_here("n1.lab"), "{name}");
        }
    }

    #[test]
    fn another_user_or_port_is_not_local() {
        let user = JobHost {
            user: Some("me".into()),
            ..host("localhost")
        };
        let port = JobHost {
            port: Some(2222),
            ..host("localhost")
        };
        assert!(!user.is_here("n1") && !port.is_here("n1"));
    }
}
