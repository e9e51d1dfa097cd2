// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ranks of a job over several hosts, by way of the front of rmpi's launcher: it has each daemon look at its own
//! ([`crate::host_report`]), and passes on what they say. Words and socket: [`wireup::look`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use wireup::look::{LOOK, LookReply, address};

use crate::host_report::{HostReport, RankSeen};
use crate::{Error, ancestor, job};

/// The front of a job.
#[derive(Debug)]
pub struct Front {
    pid: u32,
    stream: UnixStream,
    nodes: BTreeMap<u32, HostRanks>,
}

/// A host with the ranks that run there.
#[derive(Debug)]
struct HostRanks {
    host: Arc<str>,
    ranks: BTreeSet<i32>,
}

/// Ranks of a host that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// The host.
    pub host: Arc<str>,
    /// The ranks that were started there.
    pub ranks: Vec<i32>,
    /// Why.
    pub why: String,
}

/// What one look at all hosts has found.
#[derive(Debug, Default)]
pub(crate) struct JobSnapshot {
    pub(crate) ranks: Vec<RankSeen>,
    /// Ranks that have ended.
    pub(crate) ended: BTreeSet<i32>,
    pub(crate) unseen: Vec<Unseen>,
}

impl Front {
    /// The front that a process is, or has started, or whose rank it is; none where the job is of this machine alone.
    ///
    /// # Errors
    /// The front does not answer, or somebody else does.
    pub fn find(pid: u32) -> Result<Option<Self>, Error> {
        if let Some((front, _)) = Self::connect(pid)? {
            return Ok(Some(front));
        }
        let boot = ancestor::boot(pid).ok();
        // As `timeout` and `srun` start one. Jobs that ranks have started are others.
        for below in job::below(pid) {
            if ancestor::boot(below).ok() == boot
                && let Some((front, _)) = Self::connect(below)?
            {
                return Ok(Some(front));
            }
        }
        let Some(boot) = boot.filter(|boot| boot.local_size() < boot.size) else {
            return Ok(None);
        };
        for above in job::ancestors(pid) {
            if let Some((front, key)) = Self::connect(above)?
                && key == boot.job
            {
                return Ok(Some(front));
            }
        }
        Ok(None)
    }

    /// The front that has this process, if it is one, and the key of its job.
    fn connect(pid: u32) -> Result<Option<(Self, u64)>, Error> {
        let failed = |why: std::io::Error| Error::silent(pid, &why);
        let place = SocketAddr::from_abstract_name(address(pid).as_bytes()).map_err(failed)?;
        let stream = match UnixStream::connect_addr(&place) {
            Ok(stream) => stream,
            Err(why) if why.kind() == ErrorKind::ConnectionRefused => return Ok(None),
            Err(why) => return Err(failed(why)),
        };
        let who = rustix::net::sockopt::socket_peercred(&stream);
        let who = who.map_err(|why| failed(why.into()))?.pid.as_raw_pid();
        if who.cast_unsigned() != pid {
            let why = format!("process {who} answers in its place");
            return Err(Error::Front { pid, why });
        }
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut front = Self {
            pid,
            stream,
            nodes: BTreeMap::new(),
        };
        match front.hear()? {
            LookReply::Job(key) => Ok(Some((front, key))),
            _ => Err(front.nonsense()),
        }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn nonsense(&self) -> Error {
        let (pid, why) = (self.pid, wireup::look::GarbledLook.to_string());
        Error::Front { pid, why }
    }

    /// The next thing that it says.
    fn hear(&mut self) -> Result<LookReply, Error> {
        let pid = self.pid;
        let failed = |why: std::io::Error| Error::silent(pid, &why);
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).map_err(failed)?;
        let length = LookReply::length(head).map_err(|_| self.nonsense())?;
        let mut frame = Vec::new();
        let stream = &mut self.stream;
        // Room is taken as it comes, and not as it is announced.
        let read = stream.take(length as u64).read_to_end(&mut frame);
        if read.map_err(failed)? < length {
            return Err(failed(ErrorKind::UnexpectedEof.into()));
        }
        LookReply::decode(&frame).map_err(|_| self.nonsense())
    }

    /// Looks at the ranks of all hosts, in their order.
    pub(crate) fn look(&mut self) -> Result<JobSnapshot, Error> {
        let asked = self.stream.write_all(&[LOOK]);
        asked.map_err(|why| Error::silent(self.pid, &why))?;
        let mut look = JobSnapshot::default();
        loop {
            match self.hear()? {
                LookReply::End => break,
                LookReply::Job(_) => return Err(self.nonsense()),
                LookReply::Node { node, host, ranks } => {
                    let ranks = numbers(ranks).collect();
                    let host = host.into();
                    self.nodes.insert(node, HostRanks { host, ranks });
                }
                LookReply::Seen { node, ended, bytes } => {
                    look.take_in(self.node(node)?, ended, &bytes);
                }
                LookReply::Unseen { node, why } => look.lacks(self.node(node)?, why),
                LookReply::Ended(node) => look.ended.extend(&self.node(node)?.ranks),
            }
        }
        look.ranks.sort_by_key(|it| (it.rank.rank, it.rank.pid));
        look.unseen
            .sort_by(|one, other| one.ranks.cmp(&other.ranks));
        Ok(look)
    }

    fn node(&self, number: u32) -> Result<&HostRanks, Error> {
        self.nodes.get(&number).ok_or_else(|| self.nonsense())
    }
}

impl JobSnapshot {
    /// What a node says of its ranks, and of no others.
    fn take_in(&mut self, node: &HostRanks, ended: Vec<u32>, bytes: &[u8]) {
        let its = |rank: &i32| node.ranks.contains(rank);
        let read = match HostReport::read(bytes) {
            Ok(account) => account.ranks,
            Err(why) => return self.lacks(node, why),
        };
        self.ended.extend(numbers(ended).filter(its));
        for mut seen in read {
            if seen.rank.rank.as_ref().is_none_or(its) {
                seen.rank.host = Some(Arc::clone(&node.host));
                self.ranks.push(seen);
            }
        }
    }

    fn lacks(&mut self, node: &HostRanks, why: String) {
        self.unseen.push(Unseen {
            host: Arc::clone(&node.host),
            ranks: node.ranks.iter().copied().collect(),
            why,
        });
    }
}

fn numbers(ranks: Vec<u32>) -> impl Iterator<Item = i32> {
    ranks
        .into_iter()
        .filter_map(|rank| i32::try_from(rank).ok())
}

/// The front answers within this time, whatever hosts do, once it has served others that look at the same time.
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ranks: &[i32]) -> HostRanks {
        HostRanks {
            host: "b".into(),
            ranks: ranks.iter().copied().collect(),
        }
    }

    #[test]
    fn a_host_speaks_of_its_own_ranks_alone() {
        let mut look = JobSnapshot::default();
        let rank = |number: i32| {
            format!(
                "{{\"rank\":{{\"rank\":{number},\"pid\":5,\"tells_calls\":true,\"communicators\":[]}},\"before\":{{}},\
                 \"after\":{{}},\"own\":1}}"
            )
        };
        let bytes = format!("{{\"version\":1,\"ranks\":[{},{}]}}", rank(2), rank(9));
        look.take_in(&node(&[2, 3]), vec![3, 8, u32::MAX], bytes.as_bytes());
        let seen: Vec<_> = look.ranks.iter().map(|it| it.rank.process()).collect();
        assert_eq!(seen, ["pid 5 on host b"]);
        assert_eq!(look.ended, BTreeSet::from([3]));
        look.take_in(&node(&[4]), vec![4], b"nonsense");
        assert_eq!(look.unseen[0].ranks, [4]);
        assert!(!look.ended.contains(&4));
    }

    #[test]
    fn who_is_no_front_is_told_from_one() {
        assert!(Front::find(std::process::id()).unwrap().is_none());
    }

    /// Somebody has taken the name of another process's socket.
    #[test]
    fn nobody_else_answers_for_a_front() {
        let pid = 0x3fff_fff0;
        let place = SocketAddr::from_abstract_name(address(pid).as_bytes()).unwrap();
        let _taken = std::os::unix::net::UnixListener::bind_addr(&place).unwrap();
        let why = Front::find(pid).unwrap_err().to_string();
        assert!(why.contains("answers in its place"), "{why}");
    }
}
