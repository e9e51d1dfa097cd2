// SPDX-License-Identifier: MIT OR Apache-2.0
//! The description of one node's part of a job, which the front sends to a daemon in its first message.

mod runs;

use crate::affinity::Policy;
use crate::cli::{App, StdinTarget};
use crate::cpus::CpuList;
use crate::hosts::ColocatedRanks;
use crate::program::cause;
use ring::layout::MAX_LOCAL_RANKS;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs::File;
use std::time::Duration;
use wireup::{Launch, NodeMap};

/// Random keys of one job.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchKeys {
    /// Key of the job: stored in the node segment, and presented by every process that attaches to the segment.
    pub(crate) job: u64,
    /// See [`wireup::Boot::network_key`]. Drawn independently of `job`, because more processes can read `job`.
    pub(crate) network: u32,
    /// See [`wireup::Boot::stream_key`]. Drawn independently of `job` and `network`.
    pub(crate) stream: u128,
}

impl std::fmt::Debug for LaunchKeys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Keys(..)")
    }
}

impl LaunchKeys {
    /// Draws the keys from `/dev/urandom`.
    pub(crate) fn draw() -> Result<Self, String> {
        // A shift by 33 leaves 31 bits, which fit.
        let network = u32::try_from(random_u64()? >> 33).unwrap_or(0);
        let job = random_u64()?;
        let stream = u128::from(random_u64()?) << 64 | u128::from(random_u64()?);
        Ok(Self {
            job,
            network,
            stream,
        })
    }
}

/// An unpredictable number.
pub(crate) fn random_u64() -> Result<u64, String> {
    use std::io::Read;
    let mut bytes = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| format!("cannot read /dev/urandom: {}", cause(&error)))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Message to a daemon at its start. The encoding may change with every release, since both ends are of the same build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeJob {
    /// The job's keys.
    pub(crate) keys: LaunchKeys,
    /// Number of ranks of the whole job.
    pub(crate) size: u32,
    /// The programs of the command line. The message to a daemon of a job over hosts has none: the programs are sent in
    /// an earlier message, which is the same for all daemons ([`complete`](Self::complete)).
    pub(crate) programs: Vec<JobProgram>,
    /// The ranks of this node; the index is the local rank.
    #[serde(with = "runs")]
    pub(crate) ranks: Vec<PlacedRank>,
    /// The CPUs that the node's part of the job may use.
    pub(crate) cpus: CpuList,
    /// Which ranks read standard input.
    pub(crate) input: StdinTarget,
    /// Whether an unfinished line of rank 0 may be a prompt and is written soon: standard input and output are
    /// terminals, and `--output` is not given.
    pub(crate) prompts: bool,
    /// Whether the ranks are held before their first instruction, for a debugger.
    pub(crate) hold: bool,
    /// The node of each rank of the job, encoded as by [`wireup::NodeMap`]. The text is empty if it would be too long,
    /// and may be empty if all ranks are on one node.
    pub(crate) nodes: String,
    /// Whether some node of the job has more ranks than CPUs. Ranks choose algorithms by this value, so all ranks get
    /// the same value.
    pub(crate) crowded: bool,
    /// Whether the daemon reports to the front when the ranks reach a phase.
    pub(crate) report_phases: bool,
    /// Times of the launcher's steps before the ranks were started.
    pub(crate) begun: LaunchTimes,
    /// Set for a host that the front cannot inspect, where the daemon prepares the start itself.
    pub(crate) far: Option<RemoteSetup>,
}

/// Times of the steps before ranks are started, on the clock of the launcher's machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchTimes {
    /// When the command started.
    pub(crate) began: Duration,
    /// When the command line was parsed and the programs were inspected.
    pub(crate) understood: Duration,
    /// When all hosts were reached.
    pub(crate) reached: Duration,
    /// When all daemons were ready.
    pub(crate) ready: Duration,
}

impl LaunchTimes {
    /// The durations that are passed to a rank. `ordered`: when the daemon received the order to start the rank;
    /// `born`: when the rank calls `execve`. Both times are on the clock of the daemon's machine.
    pub(crate) fn durations(&self, ordered: Duration, born: Duration) -> Launch {
        let between = |from: Duration, to: Duration| nanoseconds(to.saturating_sub(from));
        Launch {
            command_ns: between(self.began, self.understood),
            hosts_ns: between(self.understood, self.reached),
            daemons_ns: between(self.reached, self.ready),
            start_ns: between(ordered, born),
            born_ns: nanoseconds(born),
        }
    }

    /// Encodes the times.
    pub(crate) fn encoded(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("numbers")
    }

    /// Decodes the result of [`encoded`](Self::encoded); `None` for anything else.
    pub(crate) fn decoded(bytes: &[u8]) -> Option<Self> {
        let (begun, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(begun)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Work of a daemon on a host that the front cannot inspect: it finds the programs there, chooses CPUs, and waits for
/// [`Order::Start`](crate::link::Order::Start) before it starts ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemoteSetup {
    /// How CPUs are assigned to ranks.
    pub(crate) policy: Policy,
    /// Whether the daemon reports the assigned CPUs to the user.
    pub(crate) report: bool,
    /// Whether the ranks leave records for `--stats`, which the daemon sends to the front.
    pub(crate) stats: bool,
    /// Ranks of other hosts of the job that run on the CPUs of this host.
    pub(crate) colocated: ColocatedRanks,
}

impl NodeJob {
    /// Number of ranks of this node.
    pub(crate) fn local_size(&self) -> u32 {
        u32::try_from(self.ranks.len()).expect("a node holds at most 1024 ranks")
    }

    /// Splits the node into `parts` nodes with consecutive blocks of its ranks. Block sizes differ by at most one,
    /// larger blocks first. No part is empty: if there are fewer ranks than `parts`, each part has one rank.
    pub(crate) fn in_parts(self, parts: u32) -> Vec<Self> {
        let parts = (parts as usize).clamp(1, self.ranks.len().max(1));
        let (each, longer) = (self.ranks.len() / parts, self.ranks.len() % parts);
        let crowded = self.ranks.len().div_ceil(parts) > self.cpus.count();
        let count = |number: usize| each + usize::from(number < longer);
        let nodes = match parts {
            1 => self.nodes,
            _ => nodes_text((0..parts).flat_map(|part| (0..count(part)).map(move |_| part))),
        };
        let mut ranks = self.ranks.into_iter();
        let mut part = |number: usize| Self {
            ranks: ranks.by_ref().take(count(number)).collect(),
            programs: self.programs.clone(),
            cpus: self.cpus.clone(),
            nodes: nodes.clone(),
            crowded,
            ..self
        };
        (0..parts).map(&mut part).collect()
    }

    /// Appends the encoded job to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let bytes = postcard::to_allocvec(self).expect("numbers, texts and lists of them");
        out.extend(bytes);
    }

    /// Decodes the result of [`encode`](Self::encode); `None` for bytes that no front would send.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (job, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        let ranks = || job.ranks.iter();
        let places = ranks().filter_map(|placed| placed.cpus.as_ref());
        let fits = rest.is_empty()
            && job.ranks.len() <= MAX_LOCAL_RANKS as usize
            && ranks().all(|placed| placed.rank < job.size)
            && (job.nodes.is_empty() || NodeMap::parse(&job.nodes, job.size).is_some())
            && (job.programs.is_empty() || job.has_programs())
            && places.chain([&job.cpus]).all(CpuList::are_possible);
        fits.then_some(job)
    }

    /// If the job has no programs, sets them to `programs`, which were sent in an earlier message. Returns whether
    /// every rank has its program now.
    pub(crate) fn complete(&mut self, programs: Vec<JobProgram>) -> bool {
        if self.programs.is_empty() {
            self.programs = programs;
        }
        self.has_programs()
    }

    fn has_programs(&self) -> bool {
        let number = self.programs.len();
        let mut ranks = self.ranks.iter();
        ranks.all(|placed| (placed.app as usize) < number)
    }
}

/// The node of each rank, in rank order, as text; empty if that would be too long.
pub(crate) fn nodes_text(nodes: impl IntoIterator<Item = usize>) -> String {
    let nodes = nodes
        .into_iter()
        .map(|node| u32::try_from(node).unwrap_or(u32::MAX));
    NodeMap::new(nodes).map_or_else(String::new, |map| map.to_string())
}

/// The path of each program, with the program's number of ranks.
pub(crate) fn paths<'a>(
    programs: &'a [JobProgram],
    apps: &'a [App],
) -> impl Iterator<Item = (CString, u32)> {
    let both = programs.iter().zip(apps);
    both.map(|(program, app)| (program.path.clone(), app.ranks))
}

/// Encodes programs.
pub(crate) fn encoded_programs(programs: &[JobProgram]) -> Vec<u8> {
    postcard::to_allocvec(programs).expect("texts and lists of them")
}

/// Decodes the result of [`encoded_programs`]; `None` for anything else.
pub(crate) fn decoded_programs(bytes: &[u8]) -> Option<Vec<JobProgram>> {
    let (programs, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(programs)
}

/// A program: all arguments of `execve` that are the same for all its ranks, and the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobProgram {
    /// The executable file.
    pub(crate) path: CString,
    /// Program name as typed, and arguments.
    pub(crate) arguments: Vec<CString>,
    /// Entries `NAME=VALUE`.
    pub(crate) environment: Vec<CString>,
    /// Working directory; `None` means the daemon's.
    pub(crate) folder: Option<CString>,
}

/// A rank with its program and CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlacedRank {
    /// Rank in the job.
    pub(crate) rank: u32,
    /// Index of its program.
    pub(crate) app: u32,
    /// CPUs to which the rank is bound, or which it prefers; `None` if its CPU mask is not changed.
    pub(crate) cpus: Option<CpuList>,
    /// Whether the rank only prefers these CPUs; see `affinity_control`.
    pub(crate) preferred: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A job of two ranks.
    pub(crate) fn some_job() -> NodeJob {
        let placed = |rank: u32| PlacedRank {
            rank,
            app: 0,
            cpus: (rank == 1).then(|| CpuList::new(vec![3])),
            preferred: rank == 1,
        };
        NodeJob {
            keys: LaunchKeys {
                job: 7,
                network: 8,
                stream: u128::MAX - 9,
            },
            size: 5,
            programs: vec![JobProgram {
                path: c"/bin/true".into(),
                arguments: vec![c"true".into(), c"".into()],
                environment: vec![c"A=b c".into(), c"\xff=1".into()],
                folder: Some(c"/tmp".into()),
            }],
            ranks: vec![placed(1), placed(4)],
            cpus: CpuList::new(vec![0, 3, 64]),
            input: StdinTarget::Rank(0),
            prompts: true,
            hold: false,
            nodes: "0+1x1,1+1x1,0+1x2,1+1x1".to_owned(),
            crowded: false,
            report_phases: true,
            begun: some_begun(),
            far: None,
        }
    }

    /// Launch times of a job over hosts.
    pub(crate) fn some_begun() -> LaunchTimes {
        let at = Duration::from_nanos;
        LaunchTimes {
            began: at(100),
            understood: at(101),
            reached: at(103),
            ready: at(106),
        }
    }

    #[test]
    fn launch_durations_do_not_depend_on_the_host_clock() {
        let at = Duration::from_nanos;
        let durations = some_begun().durations(at(7), at(11));
        let whole = [
            durations.command_ns,
            durations.hosts_ns,
            durations.daemons_ns,
        ];
        assert_eq!(
            (whole, durations.start_ns, durations.born_ns),
            ([1, 2, 3], 4, 11)
        );
        let nothing = LaunchTimes::default().durations(at(9), at(8));
        assert_eq!((nothing.command_ns, nothing.start_ns), (0, 0));
    }

    fn encoded(job: &NodeJob) -> Vec<u8> {
        let mut bytes = Vec::new();
        job.encode(&mut bytes);
        bytes
    }

    #[test]
    fn a_job_round_trips_through_encoding() {
        let job = some_job();
        assert_eq!(NodeJob::decode(&encoded(&job)), Some(job));
    }

    #[test]
    fn programs_sent_before_complete_a_job() {
        let whole = some_job();
        let mut job = NodeJob {
            programs: Vec::new(),
            ..whole.clone()
        };
        let bytes = encoded_programs(&whole.programs);
        job = NodeJob::decode(&encoded(&job)).unwrap();
        assert!(!job.complete(Vec::new()), "ranks without a program");
        assert!(job.complete(decoded_programs(&bytes).unwrap()));
        assert_eq!(job, whole);
        assert_eq!(decoded_programs(&bytes[1..]), None);
        assert_eq!(decoded_programs(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn the_ranks_of_a_job_are_divided_into_blocks() {
        let ranks = |count: u32, parts: u32| -> Vec<Vec<u32>> {
            let one = some_job();
            let placed = |rank| PlacedRank {
                rank,
                ..one.ranks[0].clone()
            };
            let job = NodeJob {
                size: count,
                ranks: (0..count).map(placed).collect(),
                ..one.clone()
            };
            let parts = job.in_parts(parts);
            assert!(
                parts
                    .iter()
                    .all(|part| (part.size, part.keys) == (count, one.keys))
            );
            let of = |part: &NodeJob| part.ranks.iter().map(|placed| placed.rank).collect();
            parts.iter().map(of).collect()
        };
        assert_eq!(ranks(5, 2), [vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(ranks(2, 1), [[0, 1]]);
        assert_eq!(ranks(2, 7), [[0], [1]]);
        assert_eq!(ranks(1, 0), [[0]]);
    }

    #[test]
    fn all_blocks_are_crowded_when_one_is() {
        let durations = |ranks: usize, parts: u32| -> Vec<bool> {
            let one = some_job();
            let job = NodeJob {
                ranks: vec![one.ranks[0].clone(); ranks],
                cpus: CpuList::new(vec![0, 1]),
                ..one
            };
            job.in_parts(parts)
                .iter()
                .map(|part| part.crowded)
                .collect()
        };
        assert_eq!(durations(5, 2), [true, true]);
        assert_eq!(durations(4, 2), [false, false]);
        assert_eq!(
            (durations(2, 1), durations(3, 1)),
            (vec![false], vec![true])
        );
    }

    #[test]
    fn inconsistent_jobs_are_rejected_by_the_decoder() {
        let bytes = encoded(&some_job());
        assert_eq!(NodeJob::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(NodeJob::decode(&[&bytes[..], &[0]].concat()), None);
        let changed = |change: fn(&mut NodeJob)| {
            let mut job = some_job();
            change(&mut job);
            NodeJob::decode(&encoded(&job))
        };
        assert_eq!(changed(|job| job.ranks[1].app = 1), None);
        assert_eq!(changed(|job| job.ranks[1].rank = 5), None);
        assert_eq!(changed(|job| job.nodes = "0+1x4".to_owned()), None);
        assert_eq!(changed(|job| job.cpus = CpuList::new(vec![u32::MAX])), None);
        assert_eq!(
            changed(|job| job.ranks[0].cpus = Some(CpuList::new(vec![1 << 20]))),
            None
        );
        let many = |job: &mut NodeJob| job.ranks = vec![job.ranks[0].clone(); 1025];
        assert_eq!(changed(many), None);
    }
}
