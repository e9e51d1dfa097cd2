// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins the job of another launcher: Slurm's `srun`, MPICH's or Intel's `mpiexec`, `prterun`, Flux. Such a rank has no
//! daemon of rmpi. This module does for the rank what a daemon would do, with data from the launcher's server
//! (`manager.rs`) and together with the other ranks of the node (`neighbours.rs`).
//!
//! # How such a rank starts
//! 1. The rank finds a server (`found.rs`), which gives its rank and the size of the job.
//! 2. All ranks of a node try to bind an abstract socket name derived from the name of the job. The first to succeed is
//!    the *leader* of the node; the others, its *guests*, connect to it. Rank 0 stores the job's keys at the server.
//!    Then all ranks pass a barrier.
//! 3. The leader now has the list of the ranks of its node. It makes the node segment, and sends each guest what a
//!    daemon would send: a [`Boot`], and the descriptor of the segment. The segment has no name, so nothing is left of
//!    it however the job ends.
//! 4. If the job has other nodes, each rank stores its network address record at the server, and the leader of each
//!    node also stores the ranks of its node. All ranks pass a second barrier. Then the leaders check whether any node
//!    has more ranks than CPUs.
//!
//! # Afterwards
//! [`Managed`] substitutes for the daemon: it answers messages to a daemon ([`ToDaemon`]) with a daemon's replies
//! ([`ToRank`]). It also reports a rank of this node that has ended without `MPI_Finalize`: the leader of the node
//! detects the end of that rank's connection. The job then ends if the launcher ends it, or if an operation needs the
//! lost rank.

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

/// The substitute for the daemon of the node.
#[derive(Debug)]
pub(crate) struct Managed {
    manager: PmiClient,
    neighbours: NodeRole,
    /// Messages that this process has not received yet.
    incoming: VecDeque<ToRank>,
    /// Whether this process is quiescent and waits for the other ranks.
    is_quiet: bool,
    is_through: bool,
    process: u32,
}

/// The result of [`Managed::join`].
pub(crate) struct JoinedJob {
    pub(crate) boot: Boot,
    pub(crate) managed: Managed,
    pub(crate) segment: Option<OwnedFd>,
}

impl Managed {
    /// Joins the other ranks of the job.
    ///
    /// # Errors
    /// When the server fails, or the ranks of the node cannot connect.
    pub(crate) fn join(mut manager: PmiClient) -> Result<JoinedJob, Error> {
        match Self::join_node(&mut manager) {
            Ok((neighbours, boot, segment)) => Ok(JoinedJob {
                boot,
                managed: Self::new(manager, neighbours),
                segment,
            }),
            Err(error) => {
                // After the abort the other ranks do not wait for this rank.
                let _ = manager.abort(1, &error.to_string());
                Err(error)
            }
        }
    }

    fn join_node(manager: &mut PmiClient) -> Result<(NodeRole, Boot, Option<OwnedFd>), Error> {
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
            manager.rest(entered.listener());
        }
        let (neighbours, boot, segment) = match entered {
            NodeEntry::Leader(mut leader) => {
                // All guests have connected by now, because each did so before it entered the barrier.
                leader.admit(size)?;
                leader.close_listener();
                let keys = manager.get(0, "keys")?.unwrap_or_default();
                let keys = JobKeys::parse(&keys)?;
                let ranks = leader.ranks();
                let boot = boot_of(manager, (&ranks, leader.cpus()), &keys)?;
                let segment = node_segment::make(keys.job, boot.local_size());
                let segment = segment.map_err(Error::Boot)?;
                leader.send_boot(|other| boot_like(&boot, other), Some(&segment))?;
                (NodeRole::Leader(leader), boot, segment)
            }
            NodeEntry::Guest(mut guest) => {
                let (boot, segment) = guest.receive_first()?;
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
            incoming: VecDeque::new(),
            is_quiet: false,
            is_through: false,
            process: std::process::id(),
        }
    }

    /// Publishes this process's network address record to other nodes. Sets in `boot` the node of each rank, and
    /// whether any node of the job has more ranks than CPUs. Collective over the job.
    ///
    /// # Errors
    /// When the server fails.
    pub(crate) fn exchange_records(&mut self, boot: &mut Boot, record: &[u8]) -> Result<(), Error> {
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
                let more = guest.receive_second()?;
                (boot.crowded, boot.nodes) = (more.crowded, more.nodes);
            }
            NodeRole::None => (boot.crowded, boot.nodes) = survey(&mut self.manager)?,
            NodeRole::Leader(leader) => {
                (boot.crowded, boot.nodes) = survey(&mut self.manager)?;
                leader.send_boot(|other| boot_like(boot, other), None)?;
            }
        }
        Ok(())
    }

    /// Takes in a message from the rank to its daemon.
    pub(crate) fn take(&mut self, message: &ToDaemon) {
        match message {
            ToDaemon::LookUp { of, .. } => {
                let answer = self.record_of(*of);
                self.incoming.push_back(answer);
            }
            ToDaemon::Quiet { .. } => {
                self.is_quiet = self.manager.begin_fence().is_ok();
                if !self.is_quiet {
                    self.incoming.push_back(ToRank::AllQuiet);
                }
            }
            // Only rank 0 prints its remarks; those of other ranks are dropped, because most of them would be equal.
            ToDaemon::Remark { rank: 0, text } => eprintln!("rmpi: rank 0: {text}"),
            // A `Publish` needs nothing: the address record is published already.
            _ => {}
        }
    }

    fn record_of(&mut self, rank: u32) -> ToRank {
        let found = self.manager.get(rank, "at");
        let why = match &found {
            Err(error) => error.to_string(),
            Ok(_) => "it has no network address".to_owned(),
        };
        let card = found.ok().flatten().unwrap_or_default();
        let record = card.split_once('.').and_then(|(_, record)| unhex(record));
        let record = record.and_then(|bytes| Record::new(&bytes));
        match record.filter(|record| !record.is_empty()) {
            Some(record) => ToRank::Record { rank, record },
            None => ToRank::NoRecord { rank, why },
        }
    }

    /// The next message that a daemon would send to the rank.
    pub(crate) fn receive(&mut self) -> ControlInput {
        if let Some(message) = self.incoming.pop_front() {
            return ControlInput::Message(message);
        }
        if self.is_quiet {
            match self.manager.is_fence_over() {
                Ok(false) => {}
                Ok(true) => {
                    self.is_quiet = false;
                    return ControlInput::Message(ToRank::AllQuiet);
                }
                Err(error) => {
                    eprintln!("rmpi: rank {}: {error}", self.manager.rank());
                    // This rank ends. Without the abort the other ranks would wait for it.
                    let _ = self.manager.abort(1, &error.to_string());
                    return ControlInput::End;
                }
            }
        }
        match self.neighbours.next_lost() {
            Some((rank, why)) => ControlInput::Message(ToRank::Lost { rank, why }),
            None => ControlInput::Nothing,
        }
    }

    /// Whether this process may exit without aborting the job: the rank has finalized MPI, or this is a forked child
    /// process, which only has a copy of the rank's state.
    pub(crate) fn may_end(&self) -> bool {
        self.is_through || self.process != std::process::id()
    }

    /// Records that this process has finalized MPI.
    ///
    /// # Errors
    /// When the server cannot be reached.
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
    /// When the server cannot be reached.
    pub(crate) fn abort(&mut self, code: i32, message: &str) -> Result<(), Error> {
        self.manager.abort(code, message)
    }
}

/// Checks the rank and size that a launcher gives: memory is allocated for each rank before any rank connects.
fn check_place(rank: u32, size: u32) -> Result<(), Error> {
    const MOST_RANKS: u32 = 1 << 24;
    if rank >= size || size > MOST_RANKS {
        return Err(Error::Boot(format!(
            "according to the launcher this is rank {rank} of {size}, expected a size of at most {MOST_RANKS} and a rank below the size"
        )));
    }
    Ok(())
}

/// Determines whether any node of the job has more ranks than CPUs, and the node of each rank. Reads two values from
/// the server for each node: that of one of its ranks, and that of the node. The number of a node is its lowest rank.
/// All ranks of the job compute the same result.
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

/// The [`Boot`] that a daemon would send to this rank. `near`: the ranks of its node, and the CPUs that they may use.
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
        colocated_ranks: 0,
        mask: cpus,
    })
}

/// The [`Boot`] that a daemon would send to rank `rank` of the node. `boot`: that of this rank.
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

/// The number and keys of a job. All its ranks have them, and no other job does.
struct JobKeys {
    job: u64,
    /// A number of 31 bits.
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
