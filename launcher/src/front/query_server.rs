// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves queries of `rmpi-queues` on this machine about what the ranks of all hosts wait for. A query is sent to each
//! daemon, and replies are forwarded as they arrive. Protocol and socket: [`wireup::query`].
//!
//! One client is served at a time; other clients wait in the socket's backlog. Replies have a timeout, after which a
//! host that has not replied is reported to the client.

use super::{Front, Nodes};
use crate::connection::{Disconnected, FrameConnection};
use crate::daemon::QUERY_WITHIN;
use crate::link::{Order, WaitReport};
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{getsockopt, sockopt};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use wireup::query::{QUERY, QueryReply, address};

/// Timeout for a daemon's reply. It is longer than the daemon's own time limit, [`QUERY_WITHIN`].
const ANSWER_WITHIN: Duration = QUERY_WITHIN.saturating_add(Duration::from_secs(2));
/// Time after which a client without a request is disconnected, so that the next client is served.
const SILENT_FOR: Duration = Duration::from_secs(20);
/// Maximum number of unsent bytes that are kept for a client. A client that leaves more unread is disconnected.
const MOST_KEPT_BYTES: usize = 1 << 30;

/// The listener and the connected client, if there is one.
pub(crate) struct QueryServer {
    listener: UnixListener,
    /// The job's key.
    job: u64,
    client: Option<QueryClient>,
    /// Number of queries so far.
    queries: u32,
}

/// A connected client of the query socket.
struct QueryClient {
    connection: FrameConnection,
    query: Option<PendingQuery>,
    /// When the client is disconnected if it has sent no request.
    until: Instant,
    /// Nodes that did not reply in time. Later queries of this client do not wait for them.
    silent: BTreeSet<usize>,
}

/// A query in progress.
struct PendingQuery {
    number: u32,
    waits_for: BTreeSet<usize>,
    until: Instant,
}

/// Source of an event that poll reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryReadiness {
    /// A new connection.
    Listener,
    /// A request of the client, or room for its replies.
    Client,
}

impl QueryServer {
    /// Opens the listener for the job of this front. `job`: the job's key.
    pub(crate) fn open(job: u64) -> std::io::Result<Self> {
        let name = address(std::process::id());
        let place = SocketAddr::from_abstract_name(name.as_bytes())?;
        let listener = UnixListener::bind_addr(&place)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            job,
            client: None,
            queries: 0,
        })
    }

    /// The descriptors to poll.
    pub(super) fn poll_fds(&self) -> Vec<(QueryReadiness, PollFd<'_>)> {
        let Some(client) = &self.client else {
            let door = PollFd::new(self.listener.as_fd(), PollFlags::POLLIN);
            return vec![(QueryReadiness::Listener, door)];
        };
        let message = PollFd::new(client.connection.reading(), PollFlags::POLLIN);
        let mut poll_fds = vec![(QueryReadiness::Client, message)];
        if !client.connection.is_flushed() {
            let room = PollFd::new(client.connection.writing(), PollFlags::POLLOUT);
            poll_fds.push((QueryReadiness::Client, room));
        }
        poll_fds
    }

    /// When the next timeout expires; `None` without a client.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let client = self.client.as_ref()?;
        Some(client.query.as_ref().map_or(client.until, |it| it.until))
    }

    /// Accepts a connection if the peer's user is this user or root.
    fn admit(&mut self, nodes: &Nodes) {
        let Ok((socket, _)) = self.listener.accept() else {
            return;
        };
        let ours = nix::unistd::geteuid().as_raw();
        let peer = getsockopt(&socket, sockopt::PeerCredentials);
        if !peer.is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0) {
            return;
        }
        let both_ways =
            |socket: UnixStream| FrameConnection::over(socket.try_clone()?.into(), socket.into());
        // If the descriptor cannot be duplicated, the connection is closed.
        self.client = both_ways(socket).ok().map(|mut connection| {
            introduce(self.job, nodes, &mut connection.outbox);
            QueryClient {
                connection,
                query: None,
                until: Instant::now() + SILENT_FOR,
                silent: BTreeSet::new(),
            }
        });
    }

    /// Reads a request of the client and starts a query. An invalid request closes the connection.
    fn receive(&mut self, nodes: &mut Nodes) {
        let Some(client) = &mut self.client else {
            return;
        };
        let mut request = [0];
        match client.connection.read(&mut request) {
            Ok(0) => return,
            Ok(_) if request == [QUERY] && client.query.is_none() => (),
            _ => return self.client = None,
        }
        self.queries = self.queries.wrapping_add(1);
        client.query = Some(PendingQuery {
            number: self.queries,
            waits_for: (0..nodes.count()).collect(),
            until: Instant::now() + ANSWER_WITHIN,
        });
        // Nodes that have ended are reported by `on_time`.
        nodes.order(&Order::Query(self.queries));
    }

    /// Forwards the reply of a node.
    pub(super) fn seen(&mut self, node: usize, seen: WaitReport) {
        let Some(client) = &mut self.client else {
            return;
        };
        let turn = client.query.as_ref();
        if turn.is_none_or(|turn| turn.number != seen.query) {
            return;
        }
        if client.connection.outbox.len() > MOST_KEPT_BYTES {
            self.client = None;
            return;
        }
        let WaitReport { ended, read, .. } = seen;
        let number = number(node);
        client.report(
            node,
            &match read {
                Ok(bytes) => QueryReply::Seen {
                    node: number,
                    ended,
                    bytes,
                },
                Err(why) => QueryReply::Unseen { node: number, why },
            },
        );
        client.end_query();
    }

    /// Reports nodes that have ended or have not replied in time, sends queued data, and disconnects a client that
    /// sends no request.
    fn on_time(&mut self, now: Instant, nodes: &Nodes) {
        let Some(client) = &mut self.client else {
            return;
        };
        let turn = client.query.as_ref();
        let waiting = turn.map_or_else(BTreeSet::new, |turn| turn.waits_for.clone());
        let is_over = turn.is_some_and(|turn| turn.until <= now);
        for node in waiting {
            let number = number(node);
            if nodes.has_ended(node) {
                client.report(node, &QueryReply::Ended(number));
            } else if is_over || client.silent.contains(&node) {
                client.silent.insert(node);
                let seconds = ANSWER_WITHIN.as_secs();
                let why = format!("there was no answer within {seconds} s");
                client.report(node, &QueryReply::Unseen { node: number, why });
            }
        }
        client.end_query();
        let is_silent = client.query.is_none() && client.until <= now;
        if is_silent || client.connection.flush() == Err(Disconnected) {
            self.client = None;
        }
    }
}

impl QueryClient {
    /// Queues the result of a node, unless the result of this node was queued before in this query.
    fn report(&mut self, node: usize, reply: &QueryReply) {
        let turn = self.query.as_mut();
        if turn.is_some_and(|turn| turn.waits_for.remove(&node)) {
            reply.put(&mut self.connection.outbox);
        }
    }

    fn end_query(&mut self) {
        if self
            .query
            .take_if(|turn| turn.waits_for.is_empty())
            .is_some()
        {
            QueryReply::End.put(&mut self.connection.outbox);
            self.until = Instant::now() + SILENT_FOR;
        }
    }
}

impl Front {
    /// Handles a new connection or a request.
    pub(super) fn serve_query(&mut self, event: QueryReadiness) {
        let Some(query_server) = &mut self.query_server else {
            return;
        };
        match event {
            QueryReadiness::Listener => query_server.admit(&self.nodes),
            QueryReadiness::Client => query_server.receive(&mut self.nodes),
        }
    }

    /// Handles timeouts of the query server, and closes it when the job is over.
    pub(super) fn check_query_server(&mut self, now: Instant) {
        if self.is_over {
            self.query_server = None;
        }
        if let Some(query_server) = &mut self.query_server {
            query_server.on_time(now, &self.nodes);
        }
    }
}

/// Appends the messages for a new client: the job's key and the job's nodes.
fn introduce(job: u64, nodes: &Nodes, out: &mut Vec<u8>) {
    QueryReply::Job(job).put(out);
    for node in 0..nodes.count() {
        let reply = QueryReply::Node {
            node: number(node),
            host: nodes.host(node).to_owned(),
            ranks: nodes.ranks_of(node),
        };
        reply.put(out);
    }
}

fn number(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::JobNode;
    use crate::link::{NodeEvent, NodeSummary};
    use std::io::{Read, Write};
    use wireup::NodeMap;

    /// Two nodes with one rank each, and the daemons' ends of the connections.
    fn nodes() -> (Nodes, Vec<FrameConnection>) {
        let mut nodes = Nodes::of(NodeMap::new(0..2).unwrap().by_node());
        let daemons = (0..2).map(|number| {
            let (ours, theirs) = FrameConnection::pair().unwrap();
            nodes.add_link(ours, 100, false);
            nodes.add(JobNode::new(format!("h{number}"), false));
            theirs
        });
        let daemons = daemons.collect();
        (nodes, daemons)
    }

    /// A client that has sent a query.
    fn connect(query_server: &mut QueryServer, nodes: &mut Nodes) -> UnixStream {
        let name = address(std::process::id());
        let place = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let mut client = UnixStream::connect_addr(&place).unwrap();
        client.write_all(&[QUERY]).unwrap();
        query_server.admit(nodes);
        query_server.receive(nodes);
        client
    }

    fn received(client: &mut UnixStream) -> Vec<QueryReply> {
        let mut all = Vec::new();
        while all.last() != Some(&QueryReply::End) {
            let mut head = [0; 4];
            client.read_exact(&mut head).unwrap();
            let mut frame = vec![0; QueryReply::length(head).unwrap()];
            client.read_exact(&mut frame).unwrap();
            all.push(QueryReply::decode(&frame).unwrap());
        }
        all
    }

    fn seen(query: u32) -> WaitReport {
        WaitReport {
            query,
            ended: vec![0],
            read: Ok(b"x".to_vec()),
        }
    }

    /// All cases are one test, since the socket's name is the same for all tests of a process.
    #[test]
    fn each_node_gets_a_reply_even_if_ended_or_lost() {
        let mut query_server = QueryServer::open(7).unwrap();
        let (mut nodes, _daemons) = nodes();
        let mut client = connect(&mut query_server, &mut nodes);
        query_server.seen(1, seen(9));
        query_server.seen(0, seen(1));
        query_server.seen(0, seen(1));
        nodes.combine(1, NodeEvent::Ended(NodeSummary::default()));
        query_server.on_time(Instant::now(), &nodes);
        let node = |node, host: &str| QueryReply::Node {
            node,
            host: host.to_owned(),
            ranks: vec![node],
        };
        let reply = QueryReply::Seen {
            node: 0,
            ended: vec![0],
            bytes: b"x".to_vec(),
        };
        let all = [
            QueryReply::Job(7),
            node(0, "h0"),
            node(1, "h1"),
            reply,
            QueryReply::Ended(1),
            QueryReply::End,
        ];
        assert_eq!(received(&mut client), all);
        // Second query: a node that does not reply is reported after the timeout.
        client.write_all(&[QUERY]).unwrap();
        query_server.receive(&mut nodes);
        query_server.on_time(Instant::now() + ANSWER_WITHIN, &nodes);
        let again = received(&mut client);
        let [
            QueryReply::Unseen { node: 0, why },
            QueryReply::Ended(1),
            QueryReply::End,
        ] = &again[..]
        else {
            panic!("{again:?}");
        };
        assert!(why.contains("no answer"), "{why}");
        // Third query: the node that did not reply is not waited for again.
        client.write_all(&[QUERY]).unwrap();
        query_server.receive(&mut nodes);
        query_server.on_time(Instant::now(), &nodes);
        assert_eq!(received(&mut client), again);
        // An invalid request closes the connection.
        client.write_all(&[77]).unwrap();
        query_server.receive(&mut nodes);
        assert!(query_server.client.is_none());
        let client = connect(&mut query_server, &mut nodes);
        drop(client);
        query_server.receive(&mut nodes);
        assert!(query_server.client.is_none());
    }
}
