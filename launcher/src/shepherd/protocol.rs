// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes and decodes the messages between a shepherd and the peer above it, as frames of [`crate::link`]. Does no
//! I/O.
//!
//! Orders to a daemon, and events from it, are forwarded as pieces of one byte stream per node and direction, cut at
//! any byte. Only the front and the daemon parse them.

use super::fan_out::RemoteHost;
use crate::hosts::HostMachine;
use crate::link::{Garbled, Inbox, frame};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// First output of a shepherd. Bytes before it are output of a login shell, and are ignored.
pub(crate) const MAGIC: &[u8] = b"\0rmpi-shepherd ";

const BEGIN: u8 = 200;
const ORDER: u8 = 201;
const DOWN_BEAT: u8 = 202;
const ORDER_ALL: u8 = 203;
const NOT_COMING: u8 = 204;
const HERE: u8 = 210;
const LOST: u8 = 211;
const EVENT: u8 = 212;
const UP_BEAT: u8 = 213;
const LINE: u8 = 214;
const ENDED: u8 = 215;

/// Message to a shepherd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DownMessage {
    /// Configuration. Always the first message, and sent once.
    Begin(Box<ShepherdConfig>),
    /// Bytes for the daemon of this node.
    Order(u32, Vec<u8>),
    /// Bytes for the daemons of all nodes.
    OrderAll(Vec<u8>),
    /// The step has not started the shepherd of this node, so the shepherd will not connect.
    NotComing(u32),
    /// Heartbeat.
    Beat,
}

/// Message from a shepherd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpMessage {
    /// The shepherd of this node and its daemon are running.
    Here(u32, HostFacts),
    /// This node could not be reached, or was lost later, for example because its daemon ended in an unexpected way.
    Lost(u32, NodeLoss),
    /// Bytes from the daemon of this node.
    Event(u32, Vec<u8>),
    /// The daemon of this node has exited with code 0. If its last event,
    /// [`NodeEvent::Ended`](crate::link::NodeEvent::Ended), has not arrived before, the front counts the node as lost.
    Ended(u32),
    /// Heartbeat.
    Beat,
    /// Heartbeat whose last byte is a newline. It is sent because some remote shells (`srun`) buffer output up to the
    /// next newline.
    Line,
}

/// Configuration of a shepherd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShepherdConfig {
    /// The node whose daemon this shepherd starts; `None` if it starts no daemon.
    pub(crate) own: Option<u32>,
    /// The hosts whose shepherds are below this one.
    pub(crate) below: Vec<RemoteHost>,
    /// The step that starts all shepherds below; only in the configuration of the front's shepherd.
    pub(crate) step: Option<JobStep>,
    /// `true`: a job step has started the shepherds below this one, and they connect to it. `false`: this shepherd
    /// starts them by the remote shell.
    pub(crate) in_step: bool,
    /// The remote shell.
    pub(crate) shell: RemoteShell,
    /// Heartbeat interval, and timeouts.
    pub(crate) pace: HeartbeatTiming,
}

/// A job step: one command of a batch system that starts the shepherds of all other hosts. Each shepherd connects to
/// the shepherd that would have started it by the remote shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobStep {
    /// Key of the handshake.
    pub(crate) key: StepKey,
    /// Port range to listen in; `None`: the front's shepherd chooses one.
    pub(crate) ports: Option<(u16, u16)>,
    /// Environment variable that holds the name by which the step addresses the host; `None` if that is the host's own
    /// name.
    pub(crate) variable: Option<String>,
    /// The command.
    pub(crate) command: Vec<String>,
}

/// An unpredictable 128-bit key.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepKey(pub(crate) u128);

impl std::fmt::Debug for StepKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("StepKey(..)")
    }
}

/// How a shepherd is started on another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemoteShell {
    /// The remote shell and its options, without the host. Empty: `ssh` with default options.
    pub(crate) line: Vec<String>,
    /// Whether the command follows the host's name as separate arguments; otherwise it follows as one line for a shell.
    pub(crate) takes_arguments: bool,
    /// Path of `rmpiexec` on the other host.
    pub(crate) program: String,
    /// The host on which the remote shell is called; empty: the front's host.
    pub(crate) from: String,
}

/// Timing of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeartbeatTiming {
    /// Interval between heartbeats.
    pub(crate) every: Duration,
    /// Time without messages after which a peer is lost.
    pub(crate) dead_after: Duration,
    /// Timeout for the first message of a new shepherd.
    pub(crate) first_message_timeout: Duration,
}

/// Facts about a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostFacts {
    /// Its own host name.
    pub(crate) name: String,
    /// Number of CPUs that a job may use on the host; at least 1.
    pub(crate) cpus: u32,
    /// Number of cores to which the CPUs of the mask belong, but at most `cpus`.
    pub(crate) cores: u32,
    /// Limit of locked memory of a process on the host, in bytes; `u64::MAX` if there is none.
    pub(crate) locked: u64,
    /// Whether the host has InfiniBand or RoCE devices, which need locked memory.
    pub(crate) has_devices: bool,
    /// Identifies the machine: several hosts may be one machine.
    pub(crate) machine: HostMachine,
}

/// Why a node is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeLoss {
    /// Message that is printed after the host's name and a colon.
    pub(crate) message: String,
    /// Exit code of the job.
    pub(crate) code: u8,
}

impl DownMessage {
    /// Appends the frame.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin(begin) => frame(out, BEGIN, |body| put(&**begin, body)),
            Self::Order(node, bytes) => Self::put_order(*node, bytes, out),
            Self::OrderAll(bytes) => Self::put_order_all(bytes, out),
            Self::NotComing(node) => frame(out, NOT_COMING, |body| put(node, body)),
            Self::Beat => frame(out, DOWN_BEAT, |_| ()),
        }
    }

    /// Appends these bytes as frames of [`DownMessage::Order`].
    pub(crate) fn put_order(node: u32, bytes: &[u8], out: &mut Vec<u8>) {
        piece(out, ORDER, node, bytes);
    }

    /// Appends these bytes as frames of [`DownMessage::OrderAll`].
    pub(crate) fn put_order_all(bytes: &[u8], out: &mut Vec<u8>) {
        for part in bytes.chunks(PIECE_BYTES) {
            frame(out, ORDER_ALL, |body| body.extend_from_slice(part));
        }
    }

    /// Reads the next whole frame.
    pub(crate) fn take(inbox: &mut Inbox) -> Result<Option<Self>, Garbled> {
        let Some((kind, body)) = inbox.raw_frame()? else {
            return Ok(None);
        };
        Ok(Some(match kind {
            BEGIN => Self::Begin(Box::new(decoded(body)?)),
            ORDER => {
                let (node, bytes) = take_piece(body)?;
                Self::Order(node, bytes)
            }
            ORDER_ALL => Self::OrderAll(body.to_vec()),
            NOT_COMING => Self::NotComing(decoded(body)?),
            DOWN_BEAT => Self::Beat,
            _ => return Err(Garbled),
        }))
    }
}

impl UpMessage {
    /// Appends the frame.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Here(node, facts) => frame(out, HERE, |body| put(&(node, facts), body)),
            Self::Lost(node, loss) => frame(out, LOST, |body| put(&(node, loss), body)),
            Self::Event(node, bytes) => piece(out, EVENT, *node, bytes),
            Self::Ended(node) => frame(out, ENDED, |body| put(node, body)),
            Self::Beat => frame(out, UP_BEAT, |_| ()),
            Self::Line => frame(out, LINE, |body| body.push(b'\n')),
        }
    }

    /// Reads the next whole frame.
    pub(crate) fn take(inbox: &mut Inbox) -> Result<Option<Self>, Garbled> {
        let Some((kind, body)) = inbox.raw_frame()? else {
            return Ok(None);
        };
        Ok(Some(match kind {
            HERE => {
                let (node, facts) = decoded(body)?;
                Self::Here(node, facts)
            }
            LOST => {
                let (node, loss) = decoded(body)?;
                Self::Lost(node, loss)
            }
            EVENT => {
                let (node, bytes) = take_piece(body)?;
                Self::Event(node, bytes)
            }
            ENDED => Self::Ended(decoded(body)?),
            UP_BEAT => Self::Beat,
            LINE => Self::Line,
            _ => return Err(Garbled),
        }))
    }
}

/// Maximum size of a piece, in bytes. Longer data is cut into pieces; pieces for other nodes can be sent in between.
const PIECE_BYTES: usize = 256 << 10;

/// Appends a stream's bytes as frames.
fn piece(out: &mut Vec<u8>, kind: u8, node: u32, bytes: &[u8]) {
    for part in bytes.chunks(PIECE_BYTES) {
        frame(out, kind, |body| {
            body.extend(node.to_le_bytes());
            body.extend_from_slice(part);
        });
    }
}

fn take_piece(body: &[u8]) -> Result<(u32, Vec<u8>), Garbled> {
    let (node, bytes) = body.split_first_chunk().ok_or(Garbled)?;
    Ok((u32::from_le_bytes(*node), bytes.to_vec()))
}

pub(super) fn put<T: Serialize>(value: &T, body: &mut Vec<u8>) {
    let bytes = postcard::to_allocvec(value).expect("numbers, texts and lists of them");
    body.extend(bytes);
}

pub(super) fn decoded<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Garbled> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(Garbled),
    }
}

/// First line of a shepherd of this release.
pub(crate) fn greeting() -> Vec<u8> {
    [MAGIC, release().as_bytes(), b"\n"].concat()
}

/// The version, which must be the same at both ends.
fn release() -> &'static str {
    concat!(env!("CARGO_PKG_VERSION"), "/", 8)
}

/// Result of the search for the greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// The greeting was not found yet; more bytes may complete it.
    NotYet,
    /// The greeting of this release was found; the number of bytes up to its end.
    Right(usize),
    /// The greeting of this other release was found.
    Other(String),
    /// The greeting was not found in more bytes than a login shell may print before it, or its release text is too
    /// long.
    TooMuch,
}

/// Maximum number of bytes before the greeting.
const MOST_NOISE: usize = 1 << 20;
/// Maximum length of a release text, in bytes.
const LONGEST_RELEASE: usize = 64;

/// Searches for the greeting in the bytes received so far.
pub(crate) fn find_greeting(bytes: &[u8]) -> Greeting {
    let Some(at) = bytes.windows(MAGIC.len()).position(|part| part == MAGIC) else {
        return match bytes.len() > MOST_NOISE {
            true => Greeting::TooMuch,
            false => Greeting::NotYet,
        };
    };
    let rest = &bytes[at + MAGIC.len()..];
    match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) if rest[..end] == *release().as_bytes() => {
            Greeting::Right(at + MAGIC.len() + end + 1)
        }
        Some(end) => {
            Greeting::Other(String::from_utf8_lossy(&rest[..end.min(LONGEST_RELEASE)]).into())
        }
        None if rest.len() > LONGEST_RELEASE => Greeting::TooMuch,
        None => Greeting::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::CpuList;

    fn begin() -> ShepherdConfig {
        ShepherdConfig {
            own: Some(3),
            below: vec![RemoteHost {
                node: 4,
                name: "n4".into(),
                user: Some("me".into()),
                port: None,
            }],
            step: Some(JobStep {
                key: StepKey(77),
                ports: Some((4000, 4015)),
                variable: None,
                command: vec!["srun".into()],
            }),
            in_step: true,
            shell: RemoteShell {
                line: vec!["ssh".into()],
                takes_arguments: false,
                program: "/opt/bin/rmpiexec".into(),
                from: "n3".into(),
            },
            pace: HeartbeatTiming {
                every: Duration::from_secs(1),
                dead_after: Duration::from_secs(20),
                first_message_timeout: Duration::from_secs(60),
            },
        }
    }

    #[test]
    fn messages_round_trip_through_encoding() {
        let facts = HostFacts {
            name: "n4.lab".into(),
            cpus: 16,
            cores: 8,
            locked: u64::MAX,
            has_devices: true,
            machine: HostMachine {
                boot: "b-7".into(),
                mask: CpuList::new(vec![0, 3]),
            },
        };
        let loss = NodeLoss {
            message: "is gone".into(),
            code: 1,
        };
        let ups = [
            UpMessage::Here(4, facts),
            UpMessage::Lost(5, loss),
            UpMessage::Event(6, b"xyz".to_vec()),
            UpMessage::Ended(7),
            UpMessage::Beat,
            UpMessage::Line,
        ];
        let downs = [
            DownMessage::Begin(Box::new(begin())),
            DownMessage::Order(3, vec![1, 2]),
            DownMessage::OrderAll(vec![3, 4, 5]),
            DownMessage::NotComing(9),
            DownMessage::Beat,
        ];
        let (mut up, mut down) = (Vec::new(), Vec::new());
        ups.iter().for_each(|message| message.put(&mut up));
        downs.iter().for_each(|message| message.put(&mut down));
        let (mut from_below, mut from_above) = (Inbox::default(), Inbox::default());
        from_below.add(&up);
        from_above.add(&down);
        for message in ups {
            assert_eq!(UpMessage::take(&mut from_below), Ok(Some(message)));
        }
        for message in downs {
            assert_eq!(DownMessage::take(&mut from_above), Ok(Some(message)));
        }
        assert_eq!(UpMessage::take(&mut from_below), Ok(None));
    }

    #[test]
    fn malformed_messages_are_rejected() {
        for body in [
            &[HERE, 1][..],
            &[EVENT, 1, 2],
            &[9],
            &[UP_BEAT + 9],
            &[ENDED],
        ] {
            let mut inbox = Inbox::default();
            inbox.add(&u32::try_from(body.len()).unwrap().to_le_bytes());
            inbox.add(body);
            assert_eq!(UpMessage::take(&mut inbox), Err(Garbled), "{body:?}");
        }
    }

    #[test]
    fn the_greeting_is_found_after_noise_and_in_pieces() {
        let all = [b"Welcome\n".as_slice(), &greeting(), b"rest"].concat();
        let whole = all.len() - 4;
        for end in 0..whole {
            assert_eq!(find_greeting(&all[..end]), Greeting::NotYet, "{end}");
        }
        assert_eq!(find_greeting(&all), Greeting::Right(whole));
        let old = [MAGIC, b"0.0.1\n"].concat();
        assert_eq!(find_greeting(&old), Greeting::Other("0.0.1".into()));
        assert_eq!(
            find_greeting(&vec![b'x'; MOST_NOISE + 1]),
            Greeting::TooMuch
        );
        let endless = [MAGIC, &[b'1'; 100]].concat();
        assert_eq!(find_greeting(&endless), Greeting::TooMuch);
    }
}
