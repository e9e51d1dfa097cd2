// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a shepherd and who has started it say to each other, as frames of [`crate::link`]. Sans-IO.
//!
//! Orders to a daemon and its events pass as pieces of a stream of bytes for each node, wherever they were cut: only the front and
//! the daemon read them.

use super::shape::Target;
use crate::hosts::Machine;
use crate::link::{Garbled, Inbox, frame};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a shepherd writes first to its standard output. What came before it is noise of a login shell.
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

/// To a shepherd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Down {
    /// Start what is below you. Always the first, and never another one.
    Begin(Box<Begin>),
    /// Bytes for the daemon of this node.
    Order(u32, Vec<u8>),
    /// Bytes for the daemons of all nodes.
    OrderAll(Vec<u8>),
    /// The shepherd of this node, for which you wait, does not come by itself.
    NotComing(u32),
    /// There is nothing to say.
    Beat,
}

/// From a shepherd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Up {
    /// The shepherd of this node is there, and its daemon.
    Here(u32, Facts),
    /// This node is lost: it could not be reached, or is not any more.
    Lost(u32, Loss),
    /// Bytes from the daemon of this node.
    Event(u32, Vec<u8>),
    /// The daemon of this node has ended as it should.
    Ended(u32),
    /// There is nothing to say.
    Beat,
    /// The same, and its last byte ends a line: there are remote shells that keep what follows the last one (`srun`).
    Line,
}

/// What a shepherd does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// The node whose daemon it starts itself, if any.
    pub(crate) own: Option<u32>,
    /// The nodes that others start for it.
    pub(crate) below: Vec<Target>,
    /// One command that starts all of them, for the shepherd of the front.
    pub(crate) step: Option<Step>,
    /// They come by themselves, as one command starts all of them; who does not come is started by the shell.
    pub(crate) they_come: bool,
    /// How those are started.
    pub(crate) shell: Shell,
    /// When who says nothing is lost.
    pub(crate) pace: Pace,
}

/// The shepherds of a job, all started by one command of a batch system (a job step of Slurm): each connects to the one that would have
/// started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// What they prove to each other to know.
    pub(crate) key: StepKey,
    /// The ports at which they wait for each other; `None`: the shepherd of the front chooses some.
    pub(crate) ports: Option<(u16, u16)>,
    /// The variable that tells each how the step calls its host; `None`: as the host calls itself.
    pub(crate) variable: Option<String>,
    /// The command.
    pub(crate) command: Vec<String>,
}

/// 128 bits that nobody can guess.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepKey(pub(crate) u128);

impl std::fmt::Debug for StepKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("StepKey(..)")
    }
}

/// How a shepherd is started on another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shell {
    /// The remote shell and its options, without the host. Empty: `ssh` with the options that suit it.
    pub(crate) line: Vec<String>,
    /// It takes the words of a command behind the host's name, and not a line for a shell.
    pub(crate) takes_words: bool,
    /// The program `rmpiexec` there.
    pub(crate) program: String,
    /// The host from which they are called; empty: that of the front.
    pub(crate) from: String,
}

/// Times of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pace {
    /// Something is said at least so often.
    pub(crate) every: Duration,
    /// Who has said nothing for so long is lost.
    pub(crate) dead_after: Duration,
    /// Who was started must have said something after this time.
    pub(crate) patience: Duration,
}

/// What a host says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The name that it has itself.
    pub(crate) name: String,
    /// CPUs that a job may use there.
    pub(crate) cpus: u32,
    /// Cores among them.
    pub(crate) cores: u32,
    /// Bytes that a process may lock in memory there.
    pub(crate) locked: u64,
    /// It has devices of InfiniBand or RoCE, which read and write locked memory.
    pub(crate) has_devices: bool,
    /// Other hosts may be the same.
    pub(crate) machine: Machine,
}

/// Why a node is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    /// In words that stand behind the host's name and a colon.
    pub(crate) words: String,
    /// The exit code that the job gets.
    pub(crate) code: u8,
}

impl Down {
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

    /// The same of [`Down::Order`] with bytes that lie elsewhere.
    pub(crate) fn put_order(node: u32, bytes: &[u8], out: &mut Vec<u8>) {
        piece(out, ORDER, node, bytes);
    }

    /// The same of [`Down::OrderAll`].
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
            BEGIN => Self::Begin(Box::new(took(body)?)),
            ORDER => {
                let (node, bytes) = take_piece(body)?;
                Self::Order(node, bytes)
            }
            ORDER_ALL => Self::OrderAll(body.to_vec()),
            NOT_COMING => Self::NotComing(took(body)?),
            DOWN_BEAT => Self::Beat,
            _ => return Err(Garbled),
        }))
    }
}

impl Up {
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
                let (node, facts) = took(body)?;
                Self::Here(node, facts)
            }
            LOST => {
                let (node, loss) = took(body)?;
                Self::Lost(node, loss)
            }
            EVENT => {
                let (node, bytes) = take_piece(body)?;
                Self::Event(node, bytes)
            }
            ENDED => Self::Ended(took(body)?),
            UP_BEAT => Self::Beat,
            LINE => Self::Line,
            _ => return Err(Garbled),
        }))
    }
}

/// Bytes of a piece: a long stream is cut, so that the streams of other nodes come between.
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

pub(super) fn put<T: Serialize>(what: &T, body: &mut Vec<u8>) {
    let bytes = postcard::to_allocvec(what).expect("numbers, texts and lists of them");
    body.extend(bytes);
}

pub(super) fn took<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Garbled> {
    match postcard::take_from_bytes(body) {
        Ok((what, [])) => Ok(what),
        _ => Err(Garbled),
    }
}

/// The first line of a shepherd of this release.
pub(crate) fn greeting() -> Vec<u8> {
    [MAGIC, release().as_bytes(), b"\n"].concat()
}

/// What both ends must have in common.
fn release() -> &'static str {
    concat!(env!("CARGO_PKG_VERSION"), "/", 8)
}

/// What came of looking for the greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// It is not there yet.
    NotYet,
    /// It is of this release; so many bytes were read.
    Right(usize),
    /// It is of another release.
    Other(String),
    /// That many bytes are no noise of a shell.
    TooMuch,
}

/// Noise that is read before the greeting.
const MOST_NOISE: usize = 1 << 20;
/// A release has a short name.
const LONGEST_RELEASE: usize = 64;

/// Looks for the greeting in what has come so far.
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
    use crate::cpus::Cpus;

    fn begin() -> Begin {
        Begin {
            own: Some(3),
            below: vec![Target {
                node: 4,
                name: "n4".into(),
                user: Some("me".into()),
                port: None,
            }],
            step: Some(Step {
                key: StepKey(77),
                ports: Some((4000, 4015)),
                variable: None,
                command: vec!["srun".into()],
            }),
            they_come: true,
            shell: Shell {
                line: vec!["ssh".into()],
                takes_words: false,
                program: "/opt/bin/rmpiexec".into(),
                from: "n3".into(),
            },
            pace: Pace {
                every: Duration::from_secs(1),
                dead_after: Duration::from_secs(20),
                patience: Duration::from_secs(60),
            },
        }
    }

    #[test]
    fn words_go_to_bytes_and_back() {
        let facts = Facts {
            name: "n4.lab".into(),
            cpus: 16,
            cores: 8,
            locked: u64::MAX,
            has_devices: true,
            machine: Machine {
                boot: "b-7".into(),
                mask: Cpus::new(vec![0, 3]),
            },
        };
        let loss = Loss {
            words: "is gone".into(),
            code: 1,
        };
        let ups = [
            Up::Here(4, facts),
            Up::Lost(5, loss),
            Up::Event(6, b"xyz".to_vec()),
            Up::Ended(7),
            Up::Beat,
            Up::Line,
        ];
        let downs = [
            Down::Begin(Box::new(begin())),
            Down::Order(3, vec![1, 2]),
            Down::OrderAll(vec![3, 4, 5]),
            Down::NotComing(9),
            Down::Beat,
        ];
        let (mut up, mut down) = (Vec::new(), Vec::new());
        ups.iter().for_each(|word| word.put(&mut up));
        downs.iter().for_each(|word| word.put(&mut down));
        let (mut from_below, mut from_above) = (Inbox::default(), Inbox::default());
        from_below.add(&up);
        from_above.add(&down);
        for word in ups {
            assert_eq!(Up::take(&mut from_below), Ok(Some(word)));
        }
        for word in downs {
            assert_eq!(Down::take(&mut from_above), Ok(Some(word)));
        }
        assert_eq!(Up::take(&mut from_below), Ok(None));
    }

    #[test]
    fn what_is_no_word_is_refused() {
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
            assert_eq!(Up::take(&mut inbox), Err(Garbled), "{body:?}");
        }
    }

    #[test]
    fn the_greeting_is_found_behind_noise_and_in_pieces() {
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
