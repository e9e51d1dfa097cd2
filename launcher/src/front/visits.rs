// SPDX-License-Identifier: MIT OR Apache-2.0
//! Query server: `rmpi-queues` of this machine queries what the ranks of all hosts wait for; the query is sent to
//! each daemon, and replies are forwarded as they arrive. Protocol and socket: [`wireup::look`].
//!
//! One client is served at a time, others wait in the socket's backlog. Replies have a timeout: a host that does not
//! reply is reported as such.

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

/// Timeout for a daemon's reply, which has a time limit of its own.
const ANSWER_WITHIN: Duration = LOOK_WITHIN.saturating_add(Duration::from_secs(2));
/// Time after which a silent client is disconnected, to serve the next one.
const SILENT_FOR: Duration = Duration::from_secs(20);
/// Most unsent bytes for a client that does not read.
const MOST_KEPT_BYTES: usize = 1 << 30;

/// The listener, and the client that is connected.
pub(crate) struct Visits {
    listener: UnixListener,
    /// The job's key.
    job: u64,
    visitor: Option<Visitor>,
    /// Number of queries so far.
    looks: u32,
}

struct Visitor {
    edge: Edge,
    look: Option<Turn>,
    /// When it is disconnected for silence.
    until: Instant,
    /// Nodes that did not reply in time, and are not waited for again.
    silent: BTreeSet<usize>,
}

/// A query in progress.
struct Turn {
    number: u32,
    waits_for: BTreeSet<usize>,
    until: Instant,
}

/// What poll reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// A new connection.
    Door,
    /// A request of the client, or room for its replies.
    Visitor,
}

impl Visits {
    /// Opens the listener for the job with this key, of which this process is the front.
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

    /// The descriptors to poll.
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

    /// When the next timeout is due.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let visitor = self.visitor.as_ref()?;
        Some(visitor.look.as_ref().map_or(visitor.until, |it| it.until))
    }

    /// Accepts a connection of this user or root.
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
        // If it cannot be served, it is closed.
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

    /// Reads a request of the client, and starts a query.
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
        // Nodes that have ended are reported by `on_time`.
        nodes.order(&Order::Look(self.looks));
    }

    /// Forwards the reply of a node.
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

    /// Reports nodes that have ended or have not replied in time, and sends queued data.
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
    /// Sends the result of a node, once per query.
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
    /// Handles a new connection or a request.
    pub(super) fn attend_visitor(&mut self, ask: Ask) {
        let Some(visits) = &mut self.visits else {
            return;
        };
        match ask {
            Ask::Door => visits.admit(&self.nodes),
            Ask::Visitor => visits.hear(&mut self.nodes),
        }
    }

    /// Handles timeouts of the query server, and closes it when the job is over.
    pub(super) fn look_after_visitor(&mut self, now: Instant) {
        if self.is_over {
            self.visits = None;
        }
        if let Some(visits) = &mut self.visits {
            visits.on_time(now, &self.nodes);
        }
    }
}

/// Sends the job's key and its nodes.
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

    /// Two nodes with a rank each, and the daemons' ends of the connections.
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

    /// A client that has sent a query.
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

    /// One test, since the socket's name is unique per process.
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
        // Again: a node that does not reply is given up.
        visitor.write_all(&[LOOK]).unwrap();
        visits.hear(&mut nodes);
        visits.on_time(Instant::now() + ANSWER_WITHIN, &nodes);
        let again = told(&mut visitor);
        let [Shown::Unseen { node: 0, why }, Shown::Ended(1), Shown::End] = &again[..] else {
            panic!("{again:?}");
        };
        assert!(why.contains("no answer"), "{why}");
        // And is not waited for again.
        visitor.write_all(&[LOOK]).unwrap();
        visits.hear(&mut nodes);
        visits.on_time(Instant::now(), &nodes);
        assert_eq!(told(&mut visitor), again);
        // An invalid request closes the connection.
        visitor.write_all(&[77]).unwrap();
        visits.hear(&mut nodes);
        assert!(visits.visitor.is_none());
        let visitor = visit(&mut visits, &mut nodes);
        drop(visitor);
        visits.hear(&mut nodes);
        assert!(visits.visitor.is_none());
    }
}
