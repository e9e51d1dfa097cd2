// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that another launcher has started: Slurm's `srun`, MPICH's or Intel's `mpiexec`, `prterun`, Flux. No daemon of ours is
//! there; what it does for ranks is done in this module, from what the launcher's server gives (`manager.rs`) and with the other ranks of
//! the node (`neighbours.rs`).
//!
//! # How such a rank is born
//! 1. It finds a server (`found.rs`), which says its rank and how many there are.
//! 2. The ranks of a node meet at a name in the system that follows from the job's. Who comes first leads; the others connect to it.
//!    Rank 0 leaves the job's keys with the server. Then all wait for each other, once.
//! 3. The leader knows now who is on its node. It makes the node segment, and tells each of its neighbours what a daemon would: a
//!    [`Boot`], and the descriptor of the segment. It has no name, so that nothing is left of it however the job ends.
//! 4. Where the job has other nodes, each rank leaves with the server where it is found on the network, and the first of each node who is
//!    on it; all wait for each other again; and the leaders look whether some node has more ranks than CPUs.
//!
//! # Afterwards
//! [`Managed`] stands in for the daemon: it answers what is said to one ([`ToDaemon`]) as one would ([`ToRank`]). It tells of a rank of
//! this node that has ended without `MPI_Finalize`, which its leader sees at the end of its connection; the end of the job is the
//! launcher's to decide, or follows from what others wanted of that rank.

mod found;
mod manager;
mod neighbours;

use std::collections::VecDeque;

use wireup::{Boot, JobStreamKey, NodeMap, Ranks, Record, ToDaemon, ToRank};

use crate::Error;
use crate::boot::ControlInput;
pub(crate) use found::{Inherited, PmiAddress, PmiSetting, USED_VARIABLE, used};
pub(crate) use manager::PmiClient;
use neighbours::{NodeEntry, NodeRole};
use std::os::fd::OwnedFd;

/// What stands in for the daemon of the node.
#[derive(Debug)]
pub(crate) struct Managed {
    manager: PmiClient,
    neighbours: NodeRole,
    /// What this process has not heard yet.
    unheard: VecDeque<ToRank>,
    /// This process is quiet, and waits for the others.
    is_quiet: bool,
    is_through: bool,
    process: u32,
}

/// What a process is born with.
pub(crate) struct Born {
    pub(crate) boot: Boot,
    pub(crate) managed: Managed,
    pub(crate) segment: Option<OwnedFd>,
}

impl Managed {
    /// Meets the others of the job.
    ///
    /// # Errors
    /// When the server fails, or the ranks of the node do not find each other.
    pub(crate) fn join(mut manager: PmiClient) -> Result<Born, Error> {
        match Self::meet(&mut manager) {
            Ok((neighbours, boot, segment)) => Ok(Born {
                boot,
                managed: Self::new(manager, neighbours),
                segment,
            }),
            Err(error) => {
                // The others are not to wait for this one.
                let _ = manager.abort(1, &error.to_string());
                Err(error)
            }
        }
    }

    fn meet(manager: &mut PmiClient) -> Result<(NodeRole, Boot, Option<OwnedFd>), Error> {
        let (rank, size) = (manager.rank(), manager.size());
        check_place(rank, size)?;
        if size == 1 {
            let cpus = neighbours::cpus(std::iter::empty());
            let boot = boot_of(manager, (&[rank], cpus), &JobKeys::random()?)?;
            return Ok((NodeRole::None, boot, None));
        }
        let mut entered = NodeEntry::at(&manager.job(), rank)?;
        if rank == 0 {
            manager.put("keys", &JobKeys::random()?.to_string())?;
        }
        manager.begin_fence()?;
        while !manager.is_fence_over()? {
            entered.admit(size)?;
            manager.rest(entered.door());
        }
        let (neighbours, boot, segment) = match entered {
            NodeEntry::Leader(mut leader) => {
                // Each has connected before it began to wait.
                leader.admit(size)?;
                leader.close_door();
                let keys = manager.get(0, "keys")?.unwrap_or_default();
                let keys = JobKeys::parse(&keys)?;
                let ranks = leader.ranks();
                let boot = boot_of(manager, (&ranks, leader.cpus()), &keys)?;
                let segment = node_segment::make(keys.job, boot.local_size());
                let segment = segment.map_err(Error::Boot)?;
                leader.tell(|other| boot_like(&boot, other), Some(&segment))?;
                (NodeRole::Leader(leader), boot, segment)
            }
            NodeEntry::Guest(mut guest) => {
                let (boot, segment) = guest.hear()?;
                let app = manager.app();
                (NodeRole::Guest(guest), Boot { app, ..boot }, segment)
            }
        };
        Ok((neighbours, boot, Some(segment)))
    }

    fn new(manager: PmiClient, neighbours: NodeRole) -> Self {
        Self {
            manager,
            neighbours,
            unheard: VecDeque::new(),
            is_quiet: false,
            is_through: false,
            process: std::process::id(),
        }
    }

    /// Tells those of other nodes where this process is found, and learns about their nodes: which ranks they have, and whether one of
    /// the job has more ranks than CPUs. All ranks of the job call this, or none.
    ///
    /// # Errors
    /// When the server fails.
    pub(crate) fn meet_others(&mut self, boot: &mut Boot, record: &[u8]) -> Result<(), Error> {
        let first = boot.ranks.as_slice()[0];
        let card = format!("{first}.{}", hex(record));
        self.manager.put("at", &card)?;
        if first == self.manager.rank() {
            let crowded = u32::from(boot.crowded);
            let card = format!("{crowded}.{}", boot.ranks);
            self.manager.put("node", &card)?;
        }
        self.manager.begin_fence()?;
        while !self.manager.is_fence_over()? {
            self.manager.rest(None);
        }
        match &mut self.neighbours {
            NodeRole::Guest(guest) => {
                let more = guest.hear_more()?;
                (boot.crowded, boot.nodes) = (more.crowded, more.nodes);
            }
            NodeRole::None => (boot.crowded, boot.nodes) = survey(&mut self.manager)?,
            NodeRole::Leader(leader) => {
                (boot.crowded, boot.nodes) = survey(&mut self.manager)?;
                leader.tell(|other| boot_like(boot, other), None)?;
            }
        }
        Ok(())
    }

    /// Hears what a rank says to its daemon.
    pub(crate) fn take(&mut self, words: &ToDaemon) {
        match words {
            ToDaemon::LookUp { of, .. } => {
                let answer = self.look_up(*of);
                self.unheard.push_back(answer);
            }
            ToDaemon::Quiet { .. } => {
                self.is_quiet = self.manager.begin_fence().is_ok();
                if !self.is_quiet {
                    self.unheard.push_back(ToRank::AllQuiet);
                }
            }
            // Others find the same.
            ToDaemon::Remark { rank: 0, words } => eprintln!("rmpi: rank 0: {words}"),
            // Where it is found it has told.
            _ => {}
        }
    }

    fn look_up(&mut self, rank: u32) -> ToRank {
        let found = self.manager.get(rank, "at");
        let why = match &found {
            Err(error) => error.to_string(),
            Ok(_) => "it has told the launcher of no place on a network".to_owned(),
        };
        let card = found.ok().flatten().unwrap_or_default();
        let record = card.split_once('.').and_then(|(_, record)| unhex(record));
        let record = record.and_then(|bytes| Record::new(&bytes));
        match record.filter(|record| !record.is_empty()) {
            Some(record) => ToRank::Record { rank, record },
            None => ToRank::NoRecord { rank, why },
        }
    }

    /// The next thing that a daemon would say.
    pub(crate) fn hear(&mut self) -> ControlInput {
        if let Some(words) = self.unheard.pop_front() {
            return ControlInput::Words(words);
        }
        if self.is_quiet {
            match self.manager.is_fence_over() {
                Ok(false) => {}
                Ok(true) => {
                    self.is_quiet = false;
                    return ControlInput::Words(ToRank::AllQuiet);
                }
                Err(error) => {
                    eprintln!("rmpi: rank {}: {error}", self.manager.rank());
                    // The others wait for this one, which ends.
                    let _ = self.manager.abort(1, &error.to_string());
                    return ControlInput::End;
                }
            }
        }
        match self.neighbours.next_lost() {
            Some((rank, why)) => ControlInput::Words(ToRank::Lost { rank, why }),
            None => ControlInput::Nothing,
        }
    }

    /// Whether the process may end: it is through with MPI, or a child of the rank, which has all of it but is none.
    pub(crate) fn may_end(&self) -> bool {
        self.is_through || self.process != std::process::id()
    }

    /// This process is through with MPI.
    ///
    /// # Errors
    /// When the server does not hear it.
    pub(crate) fn finalized(&mut self) -> Result<(), Error> {
        if !self.is_through {
            self.is_through = true;
            self.neighbours.part(self.manager.rank());
            self.manager.finalize()?;
        }
        Ok(())
    }

    /// Ends the job.
    ///
    /// # Errors
    /// When the server does not hear it.
    pub(crate) fn abort(&mut self, code: i32, message: &str) -> Result<(), Error> {
        self.manager.abort(code, message)
    }
}

/// Whether a launcher may say so: memory is taken for each rank before any of them is met.
fn check_place(rank: u32, size: u32) -> Result<(), Error> {
    const MOST_RANKS: u32 = 1 << 24;
    if rank >= size || size > MOST_RANKS {
        return Err(Error::Boot(format!(
            "the launcher says that this is rank {rank} of {size}, expected at most {MOST_RANKS} and a number below that of all"
        )));
    }
    Ok(())
}

/// Whether some node of the job has more ranks than CPUs, and the node of each rank: asks for one card of each node, and for that of
/// one of its ranks. The number of a node is its lowest rank; all ranks of the job find the same.
fn survey(manager: &mut PmiClient) -> Result<(bool, Option<NodeMap>), Error> {
    let size = manager.size();
    let mut is_crowded = false;
    let mut nodes: Vec<Option<u32>> = vec![None; size as usize];
    for rank in 0..size {
        if nodes[rank as usize].is_some() {
            continue;
        }
        nodes[rank as usize] = Some(rank);
        let card = manager.get(rank, "at")?.unwrap_or_default();
        let first = card
            .split_once('.')
            .and_then(|(first, _)| first.parse().ok());
        let Some(first) = first else { continue };
        let node = manager.get(first, "node")?.unwrap_or_default();
        let Some((crowded, ranks)) = node.split_once('.') else {
            continue;
        };
        is_crowded |= crowded == "1";
        let ranks = Ranks::read(ranks, size);
        for other in ranks.iter().flat_map(Ranks::as_slice) {
            if let Some(node) = nodes.get_mut(*other as usize) {
                *node = Some(rank);
            }
        }
    }
    let nodes = nodes.into_iter().map(Option::unwrap_or_default);
    Ok((is_crowded, NodeMap::new(nodes)))
}

/// What a daemon would say to this rank on a node with these ranks, which may use these CPUs.
fn boot_of(manager: &PmiClient, near: (&[u32], Vec<u64>), keys: &JobKeys) -> Result<Boot, Error> {
    let (rank, (ranks, cpus)) = (manager.rank(), near);
    let twice = || Error::Boot("the launcher has given two processes the same rank".to_owned());
    let local_rank = ranks.iter().position(|near| *near == rank);
    let count: usize = cpus.iter().map(|word| word.count_ones() as usize).sum();
    Ok(Boot {
        job: keys.job,
        rank,
        size: manager.size(),
        local_rank: local_rank
            .and_then(|place| u32::try_from(place).ok())
            .unwrap_or(0),
        ranks: Ranks::new(ranks.to_vec()).ok_or_else(twice)?,
        nodes: None,
        app: manager.app(),
        segment_fd: -1,
        control_fd: -1,
        address: "none".to_owned(),
        daemon_pid: std::os::unix::process::parent_id(),
        network_key: Some(keys.network),
        stream_key: Some(JobStreamKey(keys.stream)),
        over_hosts: ranks.len() < manager.size() as usize,
        debugged: false,
        crowded: ranks.len() > count,
        leader: Some(rank),
        launch: None,
        beside: 0,
        mask: cpus,
    })
}

/// The same for another rank of the node.
fn boot_like(boot: &Boot, rank: u32) -> Boot {
    let place = boot.ranks.as_slice().iter().position(|near| *near == rank);
    Boot {
        rank,
        local_rank: place
            .and_then(|place| u32::try_from(place).ok())
            .unwrap_or(0),
        ..boot.clone()
    }
}

/// The numbers and keys of a job, which its ranks share and no other job has.
struct JobKeys {
    job: u64,
    /// 31 bits.
    network: u32,
    stream: u128,
}

impl JobKeys {
    fn random() -> Result<Self, Error> {
        let mut bytes = [0; 28];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut bytes[filled..], flags) {
                Ok(more) => filled += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::Boot(format!("no random numbers: {error}"))),
            }
        }
        Self::parse(&hex(&bytes))
    }

    fn parse(text: &str) -> Result<Self, Error> {
        let wrong =
            || Error::Boot("the launcher lost the keys that rank 0 left with it".to_owned());
        let bytes = unhex(text).ok_or_else(wrong)?;
        let bytes: [u8; 28] = bytes.try_into().map_err(|_| wrong())?;
        let part = |from: usize, to: usize| {
            let bytes = bytes[from..to].iter();
            bytes.fold(0_u128, |number, byte| number << 8 | u128::from(*byte))
        };
        Ok(Self {
            job: u64::try_from(part(0, 8)).unwrap_or(0),
            network: u32::try_from(part(8, 12)).unwrap_or(0) >> 1,
            stream: part(12, 28),
        })
    }
}

impl std::fmt::Display for JobKeys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (job, network, stream) = (self.job, self.network << 1, self.stream);
        write!(out, "{job:016x}{network:08x}{stream:032x}")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.iter().all(u8::is_ascii_hexdigit) || !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests;
