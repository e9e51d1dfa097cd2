// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-queues` of this machine asks what the ranks of all hosts wait for: each daemon is told to look, and what they say is passed
//! on as it comes. Words and socket: [`wireup::look`].
//!
//! One is served at a time, the others wait in the socket's queue. Nobody is waited for: a host that does not answer is said not to.

use super::{Front, Nodes};
use crate::daemon::LOOK_WITHIN;
use crate::edge::{Closed, Edge};
use crate::link::{Order, Seen};
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{getsockopt, sockopt};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use wireup::look::{LOOK, Shown, address};

/// A daemon answers within this time, whatever it has seen, or cannot be reached.
const ANSWER_WITHIN: Duration = LOOK_WITHIN.saturating_add(Duration::from_secs(2));
/// A visitor that says nothing for so long makes room for the next one.
const SILENT_FOR: Duration = Duration::from_secs(20);
/// So much is kept for a visitor that does not read.
const MOST_KEPT_BYTES: usize = 1 << 30;

/// Where visitors come to, and the one that is here.
pub(crate) struct Visits {
    listener: UnixListener,
    /// The job's key.
    job: u64,
    visitor: Option<Visitor>,
    /// Looks so far.
    looks: u32,
}

struct Visitor {
    edge: Edge,
    look: Option<Turn>,
    /// When it has said nothing for long.
    until: Instant,
    /// Nodes that did not answer it in time, for which it does not wait again.
    silent: BTreeSet<usize>,
}

/// A look under way.
struct Turn {
    number: u32,
    waits_for: BTreeSet<usize>,
    until: Instant,
}

/// What a front waits for here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// Somebody comes.
    Door,
    /// The visitor says something, or there is room for what it is told.
    Visitor,
}

impl Visits {
    /// For the job with this key, which this process is the front of.
    pub(crate) fn open(job: u64) -> std::io::Result<Self> {
        let name = address(std::process::id());
        let place = SocketAddr::from_abstract_name(name.as_bytes())?;
        let listener = UnixListener::bind_addr(&place)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            job,
            visitor: None,
            looks: 0,
        })
    }

    /// What is waited for.
    pub(super) fn asks(&self) -> Vec<(Ask, PollFd<'_>)> {
        let Some(visitor) = &self.visitor else {
            let door = PollFd::new(self.listener.as_fd(), PollFlags::POLLIN);
            return vec![(Ask::Door, door)];
        };
        let words = PollFd::new(visitor.edge.reading(), PollFlags::POLLIN);
        let mut asks = vec![(Ask::Visitor, words)];
        if !visitor.edge.is_flushed() {
            let room = PollFd::new(visitor.edge.writing(), PollFlags::POLLOUT);
            asks.push((Ask::Visitor, room));
        }
        asks
    }

    /// When something is due.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let visitor = self.visitor.as_ref()?;
        Some(visitor.look.as_ref().map_or(visitor.until, |it| it.until))
    }

    /// Lets somebody in: this user, or root.
    fn admit(&mut self, nodes: &Nodes) {
        let Ok((socket, _)) = self.listener.accept() else {
            return;
        };
        let ours = nix::unistd::geteuid().as_raw();
        let who = getsockopt(&socket, sockopt::PeerCredentials);
        if !who.is_ok_and(|who| who.uid() == ours || who.uid() == 0) {
            return;
        }
        let both_ways = |socket: UnixStream| Edge::over(socket.try_clone()?.into(), socket.into());
        // One that cannot be served sees the connection end.
        self.visitor = both_ways(socket).ok().map(|mut edge| {
            introduce(self.job, nodes, &mut edge.outbox);
            Visitor {
                edge,
                look: None,
                until: Instant::now() + SILENT_FOR,
                silent: BTreeSet::new(),
            }
        });
    }

    /// Hears the visitor. It may want all ranks to be looked at.
    fn hear(&mut self, nodes: &mut Nodes) {
        let Some(visitor) = &mut self.visitor else {
            return;
        };
        let mut word = [0];
        match visitor.edge.read(&mut word) {
            Ok(0) => return,
            Ok(_) if word == [LOOK] && visitor.look.is_none() => (),
            _ => return self.visitor = None,
        }
        self.looks = self.looks.wrapping_add(1);
        visitor.look = Some(Turn {
            number: self.looks,
            waits_for: (0..nodes.count()).collect(),
            until: Instant::now() + ANSWER_WITHIN,
        });
        // Those that have ended are told by the next look at the clock.
        nodes.order(&Order::Look(self.looks));
    }

    /// A node has answered.
    pub(super) fn seen(&mut self, node: usize, seen: Seen) {
        let Some(visitor) = &mut self.visitor else {
            return;
        };
        let turn = visitor.look.as_ref();
        if turn.is_none_or(|turn| turn.number != seen.look) {
            return;
        }
        if visitor.edge.outbox.len() > MOST_KEPT_BYTES {
            self.visitor = None;
            return;
        }
        let Seen { ended, read, .. } = seen;
        let number = number(node);
        visitor.tell(
            node,
            &match read {
                Ok(bytes) => Shown::Seen {
                    node: number,
                    ended,
                    bytes,
                },
                Err(why) => Shown::Unseen { node: number, why },
            },
        );
        visitor.end_of_look();
    }

    /// Says who has ended and who has not answered in time, and sends what is to be sent.
    fn on_time(&mut self, now: Instant, nodes: &Nodes) {
        let Some(visitor) = &mut self.visitor else {
            return;
        };
        let turn = visitor.look.as_ref();
        let waiting = turn.map_or_else(BTreeSet::new, |turn| turn.waits_for.clone());
        let is_over = turn.is_some_and(|turn| turn.until <= now);
        for node in waiting {
            let number = number(node);
            if nodes.is_gone(node) {
                visitor.tell(node, &Shown::Ended(number));
            } else if is_over || visitor.silent.contains(&node) {
                visitor.silent.insert(node);
                let seconds = ANSWER_WITHIN.as_secs();
                let why = format!("there was no answer within {seconds} s");
                visitor.tell(node, &Shown::Unseen { node: number, why });
            }
        }
        visitor.end_of_look();
        let is_silent = visitor.look.is_none() && visitor.until <= now;
        if is_silent || visitor.edge.flush() == Err(Closed) {
            self.visitor = None;
        }
    }
}

impl Visitor {
    /// Something of a node, once in a look.
    fn tell(&mut self, node: usize, shown: &Shown) {
        let turn = self.look.as_mut();
        if turn.is_some_and(|turn| turn.waits_for.remove(&node)) {
            shown.put(&mut self.edge.outbox);
        }
    }

    fn end_of_look(&mut self) {
        if self
            .look
            .take_if(|turn| turn.waits_for.is_empty())
            .is_some()
        {
            Shown::End.put(&mut self.edge.outbox);
            self.until = Instant::now() + SILENT_FOR;
        }
    }
}

impl Front {
    /// Something happens at the door, or with who is here.
    pub(super) fn attend_visitor(&mut self, ask: Ask) {
        let Some(visits) = &mut self.visits else {
            return;
        };
        match ask {
            Ask::Door => visits.admit(&self.nodes),
            Ask::Visitor => visits.hear(&mut self.nodes),
        }
    }

    /// What is due with visitors. Nobody is served when the job is over.
    pub(super) fn look_after_visitor(&mut self, now: Instant) {
        if self.is_over {
            self.visits = None;
        }
        if let Some(visits) = &mut self.visits {
            visits.on_time(now, &self.nodes);
        }
    }
}

/// Names the job and its nodes.
fn introduce(job: u64, nodes: &Nodes, out: &mut Vec<u8>) {
    Shown::Job(job).put(out);
    for node in 0..nodes.count() {
        let shown = Shown::Node {
            node: number(node),
            host: nodes.host(node).to_owned(),
            ranks: nodes.ranks_of(node),
        };
        shown.put(out);
    }
}

fn number(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::Node;
    use crate::link::{Event, Gone};
    use std::io::{Read, Write};
    use wireup::NodeMap;

    /// Two nodes with a rank each, and the edges of their daemons.
    fn nodes() -> (Nodes, Vec<Edge>) {
        let mut nodes = Nodes::of(NodeMap::new(0..2).unwrap().by_node());
        let daemons = (0..2).map(|number| {
            let (ours, theirs) = Edge::pair().unwrap();
            nodes.add_way(ours, 100, false);
            nodes.add(Node::new(format!("h{number}"), false));
            theirs
        });
        let daemons = daemons.collect();
        (nodes, daemons)
    }

    /// A visitor that has asked for a look.
    fn visit(visits: &mut Visits, nodes: &mut Nodes) -> UnixStream {
        let name = address(std::process::id());
        let place = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let mut visitor = UnixStream::connect_addr(&place).unwrap();
        visitor.write_all(&[LOOK]).unwrap();
        visits.admit(nodes);
        visits.hear(nodes);
        visitor
    }

    fn told(visitor: &mut UnixStream) -> Vec<Shown> {
        let mut all = Vec::new();
        while all.last() != Some(&Shown::End) {
            let mut head = [0; 4];
            visitor.read_exact(&mut head).unwrap();
            let mut frame = vec![0; Shown::length(head).unwrap()];
            visitor.read_exact(&mut frame).unwrap();
            all.push(Shown::decode(&frame).unwrap());
        }
        all
    }

    fn seen(look: u32) -> Seen {
        Seen {
            look,
            ended: vec![0],
            read: Ok(b"x".to_vec()),
        }
    }

    /// One test, since a process has one door.
    #[test]
    fn each_node_has_its_word_whatever_becomes_of_it() {
        let mut visits = Visits::open(7).unwrap();
        let (mut nodes, _daemons) = nodes();
        let mut visitor = visit(&mut visits, &mut nodes);
        visits.seen(1, seen(9));
        visits.seen(0, seen(1));
        visits.seen(0, seen(1));
        nodes.put_together(1, Event::Gone(Gone::default()));
        visits.on_time(Instant::now(), &nodes);
        let node = |node, host: &str| Shown::Node {
            node,
            host: host.to_owned(),
            ranks: vec![node],
        };
        let shown = Shown::Seen {
            node: 0,
            ended: vec![0],
            bytes: b"x".to_vec(),
        };
        let all = [
            Shown::Job(7),
            node(0, "h0"),
            node(1, "h1"),
            shown,
            Shown::Ended(1),
            Shown::End,
        ];
        assert_eq!(told(&mut visitor), all);
        // Again: who does not answer is given up.
        visitor.write_all(&[LOOK]).unwrap();
        visits.hear(&mut nodes);
        visits.on_time(Instant::now() + ANSWER_WITHIN, &nodes);
        let again = told(&mut visitor);
        let [Shown::Unseen { node: 0, why }, Shown::Ended(1), Shown::End] = &again[..] else {
            panic!("{again:?}");
        };
        assert!(why.contains("no answer"), "{why}");
        // And not waited for again.
        visitor.write_all(&[LOOK]).unwrap();
        visits.hear(&mut nodes);
        visits.on_time(Instant::now(), &nodes);
        assert_eq!(told(&mut visitor), again);
        // Nonsense is not answered.
        visitor.write_all(&[77]).unwrap();
        visits.hear(&mut nodes);
        assert!(visits.visitor.is_none());
        let visitor = visit(&mut visits, &mut nodes);
        drop(visitor);
        visits.hear(&mut nodes);
        assert!(visits.visitor.is_none());
    }
}
