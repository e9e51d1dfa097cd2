// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inspects the ranks of a job over several hosts, through the front of rmpi's launcher: each daemon takes a snapshot
//! of its own ranks ([`crate::host_report`]), and the front forwards the reports. The messages and the socket are
//! defined in [`wireup::query`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use wireup::query::{QUERY, QueryReply, address};

use crate::host_report::{HostReport, RankSeen};
use crate::{Error, ancestor, job};

/// A connection to the front of a job.
#[derive(Debug)]
pub struct FrontConnection {
    pid: u32,
    stream: UnixStream,
    nodes: BTreeMap<u32, HostRanks>,
}

/// A host with the ranks that were started there.
#[derive(Debug)]
struct HostRanks {
    host: Arc<str>,
    ranks: BTreeSet<i32>,
}

/// A host whose ranks could not be inspected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// The host.
    pub host: Arc<str>,
    /// The ranks that were started there.
    pub ranks: Vec<i32>,
    /// Why they could not be inspected.
    pub why: String,
}

/// A snapshot of all hosts.
#[derive(Debug, Default)]
pub(crate) struct JobSnapshot {
    pub(crate) ranks: Vec<RankSeen>,
    /// Ranks that have ended.
    pub(crate) ended: BTreeSet<i32>,
    pub(crate) unseen: Vec<Unseen>,
}

impl FrontConnection {
    /// Finds the front of a job: process `pid` itself or a descendant of it. If `pid` is a rank, the front may also be
    /// an ancestor of the rank. `None` if there is no front, as for a job on only this machine.
    ///
    /// # Errors
    /// When the front does not reply, or another process replies in its place.
    pub fn find(pid: u32) -> Result<Option<Self>, Error> {
        if let Some((front, _)) = Self::connect(pid)? {
            return Ok(Some(front));
        }
        let boot = ancestor::boot(pid).ok();
        // A front may be started by `timeout` or `srun`. Ranks may have started jobs of their own: the fronts of these
        // have other boot records, and are skipped.
        for below in job::descendants(pid) {
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

    /// Connects to process `pid`, if it is a front; also returns the key of its job.
    fn connect(pid: u32) -> Result<Option<(Self, u64)>, Error> {
        let failed = |why: std::io::Error| Error::no_answer(pid, &why);
        let place = SocketAddr::from_abstract_name(address(pid).as_bytes()).map_err(failed)?;
        let stream = match UnixStream::connect_addr(&place) {
            Ok(stream) => stream,
            Err(why) if why.kind() == ErrorKind::ConnectionRefused => return Ok(None),
            Err(why) => return Err(failed(why)),
        };
        let server = rustix::net::sockopt::socket_peercred(&stream);
        let server = server.map_err(|why| failed(why.into()))?.pid.as_raw_pid();
        if server.cast_unsigned() != pid {
            let why = format!("process {server} answers in its place");
            return Err(Error::Front { pid, why });
        }
        stream
            .set_read_timeout(Some(REPLY_TIMEOUT))
            .map_err(failed)?;
        let mut front = Self {
            pid,
            stream,
            nodes: BTreeMap::new(),
        };
        match front.receive()? {
            QueryReply::Job(key) => Ok(Some((front, key))),
            _ => Err(front.protocol_error()),
        }
    }

    /// The front's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn protocol_error(&self) -> Error {
        let (pid, why) = (self.pid, wireup::query::InvalidQueryReply.to_string());
        Error::Front { pid, why }
    }

    /// Receives the next message.
    fn receive(&mut self) -> Result<QueryReply, Error> {
        let pid = self.pid;
        let failed = |why: std::io::Error| Error::no_answer(pid, &why);
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).map_err(failed)?;
        let length = QueryReply::length(head).map_err(|_| self.protocol_error())?;
        let mut frame = Vec::new();
        let stream = &mut self.stream;
        // Memory is allocated as bytes arrive: the announced length may be wrong.
        let read = stream.take(length as u64).read_to_end(&mut frame);
        if read.map_err(failed)? < length {
            return Err(failed(ErrorKind::UnexpectedEof.into()));
        }
        QueryReply::decode(&frame).map_err(|_| self.protocol_error())
    }

    /// Takes a snapshot of the ranks of all hosts, sorted by rank.
    pub(crate) fn inspect(&mut self) -> Result<JobSnapshot, Error> {
        let sent = self.stream.write_all(&[QUERY]);
        sent.map_err(|why| Error::no_answer(self.pid, &why))?;
        let mut snapshot = JobSnapshot::default();
        loop {
            match self.receive()? {
                QueryReply::End => break,
                QueryReply::Job(_) => return Err(self.protocol_error()),
                QueryReply::Node { node, host, ranks } => {
                    let ranks = numbers(ranks).collect();
                    let host = host.into();
                    self.nodes.insert(node, HostRanks { host, ranks });
                }
                QueryReply::Seen { node, ended, bytes } => {
                    snapshot.add_report(self.node(node)?, ended, &bytes);
                }
                QueryReply::Unseen { node, why } => snapshot.add_unseen(self.node(node)?, why),
                QueryReply::Ended(node) => snapshot.ended.extend(&self.node(node)?.ranks),
            }
        }
        snapshot.ranks.sort_by_key(|it| (it.rank.rank, it.rank.pid));
        snapshot
            .unseen
            .sort_by(|one, other| one.ranks.cmp(&other.ranks));
        Ok(snapshot)
    }

    fn node(&self, number: u32) -> Result<&HostRanks, Error> {
        self.nodes.get(&number).ok_or_else(|| self.protocol_error())
    }
}

impl JobSnapshot {
    /// Adds a node's report on its ranks; ranks of other nodes in the report are ignored.
    fn add_report(&mut self, node: &HostRanks, ended: Vec<u32>, bytes: &[u8]) {
        let its = |rank: &i32| node.ranks.contains(rank);
        let read = match HostReport::read(bytes) {
            Ok(report) => report.ranks,
            Err(why) => return self.add_unseen(node, why),
        };
        self.ended.extend(numbers(ended).filter(its));
        for mut seen in read {
            if seen.rank.rank.as_ref().is_none_or(its) {
                seen.rank.host = Some(Arc::clone(&node.host));
                self.ranks.push(seen);
            }
        }
    }

    fn add_unseen(&mut self, node: &HostRanks, why: String) {
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

/// Time limit for a reply. A front replies within this time, whatever the hosts do, even if it first serves another
/// `rmpi-queues` process.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

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
    fn a_report_about_ranks_of_other_hosts_is_ignored() {
        let mut snapshot = JobSnapshot::default();
        let rank = |number: i32| {
            format!(
                "{{\"rank\":{{\"rank\":{number},\"pid\":5,\"tells_calls\":true,\"communicators\":[]}},\"before\":{{}},\
                 \"after\":{{}},\"own\":1}}"
            )
        };
        let bytes = format!("{{\"version\":1,\"ranks\":[{},{}]}}", rank(2), rank(9));
        snapshot.add_report(&node(&[2, 3]), vec![3, 8, u32::MAX], bytes.as_bytes());
        let seen: Vec<_> = snapshot.ranks.iter().map(|it| it.rank.process()).collect();
        assert_eq!(seen, ["pid 5 on host b"]);
        assert_eq!(snapshot.ended, BTreeSet::from([3]));
        snapshot.add_report(&node(&[4]), vec![4], b"nonsense");
        assert_eq!(snapshot.unseen[0].ranks, [4]);
        assert!(!snapshot.ended.contains(&4));
    }

    #[test]
    fn a_process_without_a_front_socket_is_no_front() {
        assert!(FrontConnection::find(std::process::id()).unwrap().is_none());
    }

    /// Another process has bound the socket name of a front.
    #[test]
    fn a_foreign_process_on_the_front_socket_is_refused() {
        let pid = 0x3fff_fff0;
        let place = SocketAddr::from_abstract_name(address(pid).as_bytes()).unwrap();
        let _taken = std::os::unix::net::UnixListener::bind_addr(&place).unwrap();
        let why = FrontConnection::find(pid).unwrap_err().to_string();
        assert!(why.contains("answers in its place"), "{why}");
    }
}
