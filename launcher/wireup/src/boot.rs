// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boot record of a rank: a line of text in one environment variable.
//!
//! ```text
//! 1 job=9f3a rank=3 size=64 local_rank=3 local_size=64 app=0 segment=5 control=6 address=rmpi-9f3a daemon=4711 key=5eed stream_key=7ea mask=3
//! ```
//! The leading number is the version. Keys come in any order; unknown keys are skipped, so that a newer daemon works
//! with an older library. `job`, `key`, `stream_key` and `mask` are hexadecimal. If the node does not have all ranks of
//! the job, `ranks=4-7` lists the node's ranks in the order of their local ranks, and `nodes=0+16x4` gives the node of
//! each rank of the job ([`NodeMap`]). `launch=5,0,2,1,99` holds the durations of the phases of the start ([`Launch`]).

use crate::launch::Launch;
use crate::node_map::NodeMap;
use crate::ranks::Ranks;
use std::fmt;

/// The environment variable that holds a [`Boot`].
pub const BOOT_VARIABLE: &str = "RMPI_BOOT";

const VERSION: &str = "1";
/// Maximum Q_Key for datagrams. The highest bit is left out: if the Q_Key in a work request has it set, the device
/// sends the Q_Key of the queue pair instead.
const MOST_NETWORK_KEY: u32 = u32::MAX >> 1;

/// Maximum number of ranks per node. A record with more is rejected, so no text produces an unbounded list.
const MOST_LOCAL_RANKS: u32 = 1 << 16;

/// A 128-bit secret. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobStreamKey(pub u128);

impl fmt::Debug for JobStreamKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("StreamKey(..)")
    }
}

/// Everything that a rank needs before it can communicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The job's key, random per job.
    pub job: u64,
    /// Rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Ranks in `MPI_COMM_WORLD`.
    pub size: u32,
    /// Number of this rank among the ranks of its node, from 0.
    pub local_rank: u32,
    /// The ranks of this node.
    pub ranks: Ranks,
    /// The node of each rank of the job; `None` if the launcher did not set it. All ranks get the same map.
    pub nodes: Option<NodeMap>,
    /// Index of the program on the command line (`MPI_APPNUM`).
    pub app: u32,
    /// Inherited descriptor of the node segment; -1 if there is none.
    pub segment_fd: i32,
    /// Inherited descriptor of the control socket; -1 if there is none.
    pub control_fd: i32,
    /// Name of the daemon's abstract Unix socket, without the leading zero byte.
    pub address: String,
    /// The daemon's process id.
    pub daemon_pid: u32,
    /// Key in the network datagrams of this job, by which a rank rejects datagrams of other jobs: 31 bits, random per
    /// job. It is passed only in this record, which no other user can read. `None` if the daemon did not set it.
    pub network_key: Option<u32>,
    /// Key by which ranks of this job authenticate each other on network connections: 128 bits, random per job. It is
    /// passed only in this record, and is independent of the other keys. `None` if the daemon did not set it.
    pub stream_key: Option<JobStreamKey>,
    /// Whether the job may have ranks on more than one host.
    pub over_hosts: bool,
    /// Whether a debugger has started the job.
    pub debugged: bool,
    /// Whether some node of the job has more ranks than CPUs; all ranks get the same value.
    pub crowded: bool,
    /// The rank that replaces the daemon of this node if another launcher has started the job; otherwise `None`.
    pub leader: Option<u32>,
    /// Durations of the start of this rank; `None` if the launcher did not set them.
    pub launch: Option<Launch>,
    /// Number of ranks that belong to other nodes of the job, but run on the CPUs of this node. It is 0 unless several
    /// hosts of the host list are one machine.
    pub colocated_ranks: u32,
    /// CPUs that the ranks of the node share, bit `c % 64` of word `c / 64` for CPU `c`; empty if the daemon did not
    /// set it. When the node has more ranks than CPUs, the daemon may narrow and widen the CPU mask of a rank that has
    /// sent [`ToDaemon::Hello`](crate::ToDaemon::Hello).
    pub mask: Vec<u64>,
}

impl Boot {
    /// Parses the text of [`BOOT_VARIABLE`].
    ///
    /// # Errors
    /// When the version differs, a required key is missing, a key is given twice, or a value is invalid. If a value is
    /// invalid, the error names the key and shows up to 40 characters of the value; of `stream_key` it shows only the
    /// length.
    pub fn parse(text: &str) -> Result<Self, BootError> {
        let mut parts = text.split_ascii_whitespace();
        let version = parts.next().unwrap_or("");
        if version != VERSION {
            return Err(BootError::Version {
                given: clip(version),
            });
        }
        let fields = Fields::gather(parts)?;
        let local_size = fields.number("local_size")?;
        let boot = Self {
            job: fields.hex("job")?,
            rank: fields.number("rank")?,
            size: fields.number("size")?,
            local_rank: fields.number("local_rank")?,
            ranks: fields.ranks("ranks", local_size)?,
            nodes: fields.nodes("nodes")?,
            app: fields.number("app")?,
            segment_fd: fields.descriptor("segment")?,
            control_fd: fields.descriptor("control")?,
            address: fields.required("address")?.to_owned(),
            daemon_pid: fields.number("daemon")?,
            network_key: fields.network_key("key")?,
            stream_key: fields.stream_key("stream_key")?,
            over_hosts: fields.find("over_hosts").is_some_and(|given| given != "0"),
            debugged: fields.find("debugged").is_some_and(|given| given != "0"),
            crowded: fields.find("crowded").is_some_and(|given| given != "0"),
            leader: fields
                .find("leader")
                .map(|_| fields.number("leader"))
                .transpose()?,
            launch: fields.launch("launch")?,
            colocated_ranks: match fields.find("beside") {
                Some(_) => fields.number("beside")?,
                None => 0,
            },
            mask: fields.mask("mask")?,
        };
        boot.consistent()
    }

    fn consistent(self) -> Result<Self, BootError> {
        below("rank", self.rank, self.size, "a number below size")?;
        let local_size = self.local_size();
        below(
            "local_rank",
            self.local_rank,
            local_size,
            "a number below local_size",
        )?;
        if local_size > self.size {
            return Err(bad("local_size", &local_size.to_string(), "at most size"));
        }
        let ranks = self.ranks.as_slice();
        let are_possible = ranks.iter().all(|rank| *rank < self.size);
        if !are_possible || ranks[self.local_rank as usize] != self.rank {
            let expected = "numbers below size, with rank in the place of local_rank";
            return Err(bad("ranks", &self.ranks.to_string(), expected));
        }
        if let Some(nodes) = &self.nodes {
            let own = nodes.node_of(self.rank);
            if !ranks.iter().all(|rank| nodes.node_of(*rank) == own) {
                let expected = "one node for all that ranks names";
                return Err(bad("nodes", &nodes.to_string(), expected));
            }
        }
        Ok(self)
    }

    /// Number of ranks of this node.
    #[must_use]
    pub fn local_size(&self) -> u32 {
        self.ranks.count()
    }
}

impl fmt::Display for Boot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{VERSION} job={:x} rank={} size={} local_rank={} local_size={} app={}",
            self.job,
            self.rank,
            self.size,
            self.local_rank,
            self.local_size(),
            self.app
        )?;
        if self.local_size() < self.size {
            write!(out, " ranks={}", self.ranks)?;
        }
        if let Some(nodes) = &self.nodes {
            write!(out, " nodes={nodes}")?;
        }
        write!(
            out,
            " segment={} control={} address={} daemon={}",
            self.segment_fd, self.control_fd, self.address, self.daemon_pid
        )?;
        if let Some(key) = self.network_key {
            write!(out, " key={key:x}")?;
        }
        if let Some(JobStreamKey(key)) = self.stream_key {
            write!(out, " stream_key={key:x}")?;
        }
        if self.over_hosts {
            write!(out, " over_hosts=1")?;
        }
        if self.debugged {
            write!(out, " debugged=1")?;
        }
        if self.crowded {
            write!(out, " crowded=1")?;
        }
        if let Some(leader) = self.leader {
            write!(out, " leader={leader}")?;
        }
        if let Some(launch) = self.launch {
            write!(out, " launch={launch}")?;
        }
        if self.colocated_ranks != 0 {
            write!(out, " beside={}", self.colocated_ranks)?;
        }
        let (Some((highest, lower)), false) = (self.mask.split_last(), self.mask.is_empty()) else {
            return Ok(());
        };
        write!(out, " mask={highest:x}")?;
        lower
            .iter()
            .rev()
            .try_for_each(|word| write!(out, "{word:016x}"))
    }
}

/// Why a boot line was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// The text is a boot record of another version, or no boot record.
    #[error(
        "{BOOT_VARIABLE} begins with \"{given}\", expected version {VERSION}: the launcher and the \
         MPI library come from different releases, use the rmpiexec that was installed with the library"
    )]
    Version {
        /// The first word.
        given: String,
    },
    /// A required key is missing.
    #[error(
        "{BOOT_VARIABLE} has no {key}=..., expected one: start the program with rmpiexec, or unset \
         {BOOT_VARIABLE} to run it alone"
    )]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A key occurs twice.
    #[error("{BOOT_VARIABLE} has {key}=... twice, expected it once")]
    Twice {
        /// The key.
        key: String,
    },
    /// A value that does not parse or is out of range.
    #[error("{BOOT_VARIABLE} has {key}={given}, expected {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its text.
        given: String,
        /// Description of valid values.
        expected: &'static str,
    },
}

/// The `key=value` words of a line.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn gather(parts: impl Iterator<Item = &'a str>) -> Result<Self, BootError> {
        let mut fields: Vec<(&str, &str)> = Vec::with_capacity(16);
        for (key, value) in parts.filter_map(|word| word.split_once('=')) {
            if fields.iter().any(|(known, _)| *known == key) {
                return Err(BootError::Twice { key: clip(key) });
            }
            fields.push((key, value));
        }
        Ok(Self(fields))
    }

    fn find(&self, key: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, value)| *value)
    }

    fn required(&self, key: &'static str) -> Result<&'a str, BootError> {
        self.find(key).ok_or(BootError::Missing { key })
    }

    fn number(&self, key: &'static str) -> Result<u32, BootError> {
        let given = self.required(key)?;
        given
            .parse()
            .map_err(|_| bad(key, given, "a number from 0 to 4294967295"))
    }

    fn hex(&self, key: &'static str) -> Result<u64, BootError> {
        let given = self.required(key)?;
        u64::from_str_radix(given, 16).map_err(|_| bad(key, given, "at most 16 hexadecimal digits"))
    }

    fn ranks(&self, key: &'static str, count: u32) -> Result<Ranks, BootError> {
        let Some(given) = self.find(key) else {
            if count > MOST_LOCAL_RANKS {
                let expected = "at most 65536 ranks on a node";
                return Err(bad("local_size", &count.to_string(), expected));
            }
            return Ok(Ranks::first(count));
        };
        let expected = "as many different ranks as local_size says, as in 0-3,8";
        Ranks::parse(given, count).ok_or_else(|| bad(key, given, expected))
    }

    fn nodes(&self, key: &'static str) -> Result<Option<NodeMap>, BootError> {
        let Some(given) = self.find(key) else {
            return Ok(None);
        };
        let expected = "a node for each of size ranks, as in 0+4x16";
        let nodes = NodeMap::parse(given, self.number("size")?);
        nodes.map(Some).ok_or_else(|| bad(key, given, expected))
    }

    fn launch(&self, key: &'static str) -> Result<Option<Launch>, BootError> {
        let Some(given) = self.find(key) else {
            return Ok(None);
        };
        let wrong = || bad(key, given, "five numbers of nanoseconds");
        Launch::parse(given).map(Some).ok_or_else(wrong)
    }

    fn network_key(&self, key: &'static str) -> Result<Option<u32>, BootError> {
        let Some(given) = self.find(key) else {
            return Ok(None);
        };
        let number = u32::from_str_radix(given, 16).ok();
        let number = number.filter(|number| *number <= MOST_NETWORK_KEY);
        let wrong = || bad(key, given, "a hexadecimal number of at most 31 bits");
        number.map(Some).ok_or_else(wrong)
    }

    fn stream_key(&self, key: &'static str) -> Result<Option<JobStreamKey>, BootError> {
        let Some(given) = self.find(key) else {
            return Ok(None);
        };
        let number = u128::from_str_radix(given, 16).ok();
        // The message does not quote the key, which is a secret.
        let length = format!("({} characters)", given.len());
        let wrong = || bad(key, &length, "a hexadecimal number of at most 128 bits");
        number.map(JobStreamKey).map(Some).ok_or_else(wrong)
    }

    fn descriptor(&self, key: &'static str) -> Result<i32, BootError> {
        let given = self.required(key)?;
        let number = given.parse().ok().filter(|number: &i32| *number >= -1);
        number.ok_or_else(|| bad(key, given, "a file descriptor, or -1 for none"))
    }

    fn mask(&self, key: &'static str) -> Result<Vec<u64>, BootError> {
        let digits = self.find(key).unwrap_or("").as_bytes();
        let word = |chunk: &[u8]| {
            let text = std::str::from_utf8(chunk).ok()?;
            u64::from_str_radix(text, 16).ok()
        };
        let words: Option<Vec<u64>> = digits.rchunks(16).map(word).collect();
        words.ok_or_else(|| {
            bad(
                key,
                self.find(key).unwrap_or(""),
                "the allowed CPUs as a hexadecimal mask",
            )
        })
    }
}

fn below(
    key: &'static str,
    value: u32,
    limit: u32,
    expected: &'static str,
) -> Result<(), BootError> {
    if value < limit {
        return Ok(());
    }
    Err(BootError::Value {
        key,
        given: format!("{value} with {limit} ranks"),
        expected,
    })
}

fn bad(key: &'static str, given: &str, expected: &'static str) -> BootError {
    BootError::Value {
        key,
        given: clip(given),
        expected,
    }
}

/// The first 40 characters of a value; the value may have any length.
fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "1 job=9f rank=3 size=64 local_rank=3 local_size=64 app=0 segment=5 \
                        control=-1 address=rmpi-9f daemon=4711 key=5eed stream_key=7ea mask=f0000000000000003";

    #[test]
    fn a_boot_line_round_trips() {
        let boot = Boot::parse(LINE).unwrap();
        assert_eq!(boot.job, 0x9f);
        assert_eq!((boot.rank, boot.size), (3, 64));
        assert_eq!((boot.segment_fd, boot.control_fd), (5, -1));
        assert_eq!(boot.mask, [3, 0xf]);
        assert_eq!(boot.network_key, Some(0x5eed));
        assert_eq!(boot.stream_key, Some(JobStreamKey(0x7ea)));
        assert!(!boot.over_hosts);
        assert_eq!(boot.to_string(), LINE);
    }

    #[test]
    fn unknown_keys_are_skipped() {
        let more = format!("{LINE} colour=blue lonely");
        assert_eq!(Boot::parse(&more), Boot::parse(LINE));
    }

    #[test]
    fn the_boot_line_lists_the_ranks_of_a_partial_node() {
        let line = LINE.replace(
            "local_rank=3 local_size=64 app=0",
            "local_rank=1 local_size=4 app=0 ranks=7,3-5",
        );
        let boot = Boot::parse(&line).unwrap();
        assert_eq!(boot.ranks.as_slice(), [7, 3, 4, 5]);
        assert_eq!(boot.to_string(), line);
        let rank_elsewhere = line.replace("ranks=7,3-5", "ranks=3-6");
        for (wrong, message) in [
            (
                rank_elsewhere,
                "ranks=3-6, expected numbers below size, with rank",
            ),
            (
                line.replace("ranks=7", "ranks=64"),
                "ranks=64,3-5, expected numbers below size",
            ),
            (
                line.replace("ranks=7,", "ranks="),
                "expected as many different ranks as local_size",
            ),
            (
                line.replace("ranks=7", "ranks=4"),
                "expected as many different ranks as local_size",
            ),
        ] {
            let error = Boot::parse(&wrong).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn the_boot_line_maps_each_rank_to_its_node() {
        let line = LINE.replace(
            "local_rank=3 local_size=64 app=0",
            "local_rank=1 local_size=4 app=0 ranks=2-5 nodes=7+1x2,0+1x4,7+1x58",
        );
        let boot = Boot::parse(&line).unwrap();
        let nodes = boot.nodes.as_ref().unwrap();
        assert_eq!(
            [0, 2, 6].map(|rank| nodes.node_of(rank)),
            [Some(7), Some(0), Some(7)]
        );
        assert_eq!(boot.to_string(), line);
        for (wrong, message) in [
            (
                "nodes=0+1x63",
                "nodes=0+1x63, expected a node for each of size ranks",
            ),
            (
                "nodes=0+1x4,1+1x60",
                "expected one node for all that ranks names",
            ),
        ] {
            let wrong = line.replace("nodes=7+1x2,0+1x4,7+1x58", wrong);
            let error = Boot::parse(&wrong).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_boot_line_without_mask_has_an_empty_mask() {
        let line = LINE.split(" mask").next().unwrap();
        assert_eq!(Boot::parse(line).unwrap().mask, [0_u64; 0]);
        assert_eq!(Boot::parse(line).unwrap().to_string(), line);
    }

    #[test]
    fn a_boot_line_may_lack_the_network_key() {
        let line = LINE.replace(" key=5eed", "");
        assert_eq!(Boot::parse(&line).unwrap().network_key, None);
        assert_eq!(Boot::parse(&line).unwrap().to_string(), line);
    }

    #[test]
    fn the_stream_key_has_128_bits_and_is_never_printed() {
        let with = |text: &str| Boot::parse(&LINE.replace("=7ea", &format!("={text}")));
        let key = u128::MAX - 5;
        let boot = with(&format!("{key:x}")).unwrap();
        assert_eq!(boot.stream_key, Some(JobStreamKey(key)));
        assert!(!format!("{boot:?}").contains("ffff"), "{boot:?}");
        for wrong in ["1ffffffffffffffffffffffffffffffff", "feeding", ""] {
            let message = with(wrong).unwrap_err().to_string();
            assert!(message.contains("128 bits"), "{message}");
            assert!(wrong.is_empty() || !message.contains(wrong), "{message}");
        }
        let line = LINE.replace(" stream_key=7ea", "");
        assert_eq!(Boot::parse(&line).unwrap().stream_key, None);
    }

    #[test]
    fn over_hosts_round_trips_in_the_boot_line() {
        let line = LINE.replace(" mask", " over_hosts=1 mask");
        let boot = Boot::parse(&line).unwrap();
        assert!(boot.over_hosts);
        assert_eq!(boot.to_string(), line);
    }

    #[test]
    fn launch_durations_round_trip_and_extra_ones_are_accepted() {
        let line = LINE.replace(" mask", " launch=1,2,3,4,18446744073709551615 mask");
        let boot = Boot::parse(&line).unwrap();
        let launch = boot.launch.unwrap();
        assert_eq!((launch.command_ns, launch.start_ns), (1, 4));
        assert_eq!((launch.hosts_ns, launch.born_ns), (2, u64::MAX));
        assert_eq!(boot.to_string(), line);
        assert_eq!(Boot::parse(LINE).unwrap().launch, None);
        let more = line.replace(",4,", ",4,5,6,");
        assert_eq!(Boot::parse(&more).unwrap().launch.unwrap().born_ns, 5);
        let wrong = Boot::parse(&line.replace(",3,", ",x,")).unwrap_err();
        assert!(wrong.to_string().contains("five numbers of nanoseconds"));
    }

    #[test]
    fn debugged_round_trips_in_the_boot_line() {
        let line = LINE.replace(" mask", " debugged=1 mask");
        let boot = Boot::parse(&line).unwrap();
        assert!(boot.debugged && !Boot::parse(LINE).unwrap().debugged);
        assert_eq!(boot.to_string(), line);
    }

    #[test]
    fn each_missing_key_is_named() {
        let may_miss = ["mask=", "key=", "stream_key="];
        let may_miss = |word: &str| may_miss.iter().any(|key| word.starts_with(key));
        for word in LINE.split(' ').skip(1).filter(|word| !may_miss(word)) {
            let line = LINE.replace(&format!(" {word}"), "");
            let key = word.split('=').next().unwrap();
            let error = Boot::parse(&line).unwrap_err().to_string();
            assert!(error.contains(&format!("has no {key}=")), "{error}");
        }
    }

    #[test]
    fn an_invalid_value_error_states_the_expected_form() {
        for (good, wrong, message) in [
            ("rank=3", "rank=x", "rank=x, expected a number from 0"),
            (
                "rank=3",
                "rank=64",
                "rank=64 with 64 ranks, expected a number below size",
            ),
            ("size=64", "size=-1", "size=-1, expected"),
            (
                "job=9f",
                "job=zz",
                "job=zz, expected at most 16 hexadecimal digits",
            ),
            (
                "segment=5",
                "segment=-2",
                "segment=-2, expected a file descriptor",
            ),
            (
                "key=5eed",
                "key=80000000",
                "key=80000000, expected a hexadecimal number of at most 31 bits",
            ),
            ("key=5eed", "key=-1", "key=-1, expected a hexadecimal"),
            (
                "mask=f0000000000000003",
                "mask=g",
                "mask=g, expected the allowed CPUs",
            ),
        ] {
            let line = LINE.replacen(&format!(" {good}"), &format!(" {wrong}"), 1);
            let error = Boot::parse(&line).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn another_version_and_a_repeated_key_are_refused() {
        let error = Boot::parse(&LINE.replacen('1', "2", 1))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("begins with \"2\", expected version 1"),
            "{error}"
        );
        let error = Boot::parse(&format!("{LINE} rank=4"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("rank=... twice"), "{error}");
        assert!(matches!(Boot::parse(""), Err(BootError::Version { .. })));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*") {
            let _ = Boot::parse(&text);
            let _ = Boot::parse(&format!("{LINE} {text}"));
            let _ = Boot::parse(&LINE.replace("mask=f", &format!("mask={text}")));
        }

        #[test]
        fn written_text_parses_to_the_same_value(
            job: u64, size in 1_u32..2000, rank: u32, app: u32, segment_fd in -1..i32::MAX,
            control_fd in -1..i32::MAX, daemon_pid: u32, address in "[a-z0-9-]{1,30}",
            network_key in proptest::option::of(0..=MOST_NETWORK_KEY), key: Option<u128>, over_hosts: bool, debugged: bool,
            crowded: bool, colocated_ranks: u32, leader: Option<u32>, is_mapped: bool,
            took in proptest::option::of(any::<[u64; 5]>()),
            mut mask in proptest::collection::vec(any::<u64>(), 0..20),
        ) {
            if let Some(highest) = mask.last_mut() {
                *highest |= 1;
            }
            let rank = rank % size;
            let boot = Boot {
                job, rank, size, local_rank: rank, ranks: Ranks::first(size), app, segment_fd, control_fd,
                nodes: NodeMap::new((0..size).map(|_| 3)).filter(|_| is_mapped),
                address, daemon_pid, network_key, stream_key: key.map(JobStreamKey), over_hosts, debugged, crowded,
                colocated_ranks, leader, mask,
                launch: took.map(|[command_ns, hosts_ns, daemons_ns, start_ns, born_ns]| Launch {
                    command_ns, hosts_ns, daemons_ns, start_ns, born_ns,
                }),
            };
            prop_assert_eq!(Boot::parse(&boot.to_string()), Ok(boot));
        }
    }
}
