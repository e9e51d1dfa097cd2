// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which hosts a job has, and which rank goes to which of them. Pure but for reading the host file.
//!
//! Hosts are known by their number in [`Hosts::list`], never by comparing names with what a machine calls itself, which
//! need not be the same; and names are never cut at dots.
//!
//! - One word, as `--host` has it, is read by `remote_shell::word`. `file`: host files. `gather`: what is named several times adds up.
//! - `select`: from the command line's texts to [`Hosts`].
//! - `deal`: which host each rank goes to, once all slots are known. `settle`: what follows for the request.
//! - `beside`: which hosts are one machine, once they have said what they are.
//! - `map`: that as a table. `options`: the command line's.

mod beside;
mod deal;
mod file;
mod gather;
pub(crate) mod map;
mod options;
mod select;
mod settle;

pub(crate) use beside::{Beside, Machine};
pub(crate) use beside::{beside, slots, words as same_words};
pub use deal::{Portion, deal, loads};
pub use options::Heartbeat;
pub(crate) use options::HostOptions;
pub(crate) use select::{Source, are_all_local, find};

/// A machine that ranks may run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// As the user wrote it, an IPv6 address without its brackets.
    pub name: String,
    /// Who logs in there, if somebody else.
    pub user: Option<String>,
    /// Where its remote shell listens, if elsewhere.
    pub port: Option<u16>,
    /// How many ranks it gets before the others are full too.
    pub slots: Slots,
    /// How many it may get at most (`max_slots`).
    pub most: Option<u32>,
    /// It is this machine, as the batch system says that has given it.
    pub is_own: bool,
}

/// The slots of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slots {
    /// So many.
    Number(u32),
    /// As many as the host has cores for us, which it is asked at the start.
    Cores,
}

impl Host {
    /// Whether it is this machine, which calls itself `own`: it needs no remote shell. Another user or another port is
    /// another place (a container, say), whatever its name.
    #[must_use]
    pub fn is_here(&self, own: &str) -> bool {
        let names = ["localhost", "127.0.0.1", "::1", own];
        let is_named = self.is_own || names.contains(&self.name.as_str());
        self.user.is_none() && self.port.is_none() && is_named
    }
}

/// The hosts of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// Each once, in the order in which they were named first.
    pub list: Vec<Host>,
    /// What each program wants of them.
    pub claims: Vec<Claim>,
    /// `--ranks-per-node`: as if each host had so many slots.
    pub per_host: Option<u32>,
    /// More ranks than slots are an error.
    pub is_strict: bool,
    /// `--gdb`, which is understood when the number of ranks is known.
    pub(crate) gdb: Option<String>,
    /// The host of each rank; empty until all slots are known.
    pub dealt: Vec<u32>,
}

/// What a program wants of the hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claim {
    /// `-n`; without it as many ranks as the program's hosts have slots.
    pub ranks: Option<u32>,
    /// Its own `--host`; without it all hosts.
    pub hosts: Option<Vec<Part>>,
}

/// A host, or some of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub host: u32,
    /// Slots of it; `None` for all.
    pub slots: Option<u32>,
}

impl Hosts {
    /// The slots of all hosts, if none has to be asked or all are known to have so many cores.
    #[must_use]
    pub fn slots(&self, cores: Option<u32>) -> Option<Vec<u32>> {
        let known = |host: &Host| match (self.per_host, host.slots) {
            (Some(number), _) | (None, Slots::Number(number)) => Some(number),
            (None, Slots::Cores) => cores,
        };
        self.list.iter().map(known).collect()
    }

    /// The host of each rank, for hosts with these slots and programs with so many ranks.
    #[must_use]
    pub fn deal(&self, slots: &[u32], ranks: &[u32], mapping: crate::place::Mapping) -> Vec<u32> {
        let slots: Vec<u32> = slots
            .iter()
            .map(|own| self.per_host.unwrap_or(*own))
            .collect();
        let programs = ranks.iter().zip(&self.claims);
        let programs: Vec<Portion<'_>> = programs
            .map(|(ranks, claim)| Portion {
                ranks: *ranks,
                hosts: claim.hosts.as_deref(),
            })
            .collect();
        deal(&slots, &programs, mapping)
    }

    /// How many ranks a program has where nobody says: one for each slot that it may use.
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

    fn host(name: &str) -> Host {
        Host {
            name: name.to_owned(),
            user: None,
            port: None,
            slots: Slots::Cores,
            most: None,
            is_own: false,
        }
    }

    #[test]
    fn only_exact_names_of_this_machine_are_here() {
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
    fn another_user_or_port_is_another_place() {
        let user = Host {
            user: Some("me".into()),
            ..host("localhost")
        };
        let port = Host {
            port: Some(2222),
            ..host("localhost")
        };
        assert!(!user.is_here("n1") && !port.is_here("n1"));
    }
}
