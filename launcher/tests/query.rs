// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the query server of a front: the replies to queries about its ranks, read from its socket. All hosts are
//! this machine, as in `over_hosts`, and no rank is in MPI. `rmpi-queues` itself is tested with an installation, in
//! stage `debuggers`.
#![allow(clippy::unwrap_used)]

mod common;
use common::{Running, lab::Lab, send, until};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use wireup::query::{QUERY, QueryReply, address};

/// Connects to the front of a job.
fn connect(running: &Running) -> UnixStream {
    let name = address(running.pid());
    let place = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    until("the front listens", || {
        UnixStream::connect_addr(&place).ok()
    })
}

fn receive(stream: &mut UnixStream) -> QueryReply {
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut frame = vec![0; QueryReply::length(head).unwrap()];
    stream.read_exact(&mut frame).unwrap();
    QueryReply::decode(&frame).unwrap()
}

/// Queries the nodes' ranks; returns one reply per node.
fn query(stream: &mut UnixStream) -> Vec<QueryReply> {
    stream.write_all(&[QUERY]).unwrap();
    let mut replies = Vec::new();
    loop {
        match receive(stream) {
            QueryReply::End => break,
            QueryReply::Job(_) | QueryReply::Node { .. } => (),
            reply => replies.push(reply),
        }
    }
    replies.sort_by_key(|reply| match reply {
        QueryReply::Seen { node, .. }
        | QueryReply::Unseen { node, .. }
        | QueryReply::Ended(node) => *node,
        other => panic!("{other:?}"),
    });
    replies
}

/// Whether this is a valid reply. `rmpi-queues` may be installed or not, so both a report and the error that it is not
/// installed are valid.
fn is_answer(reply: &QueryReply) -> bool {
    match reply {
        QueryReply::Seen { bytes, .. } => bytes == b"{\"version\":1,\"ranks\":[]}",
        QueryReply::Unseen { why, .. } => why == "rmpi-queues is not installed there",
        _ => false,
    }
}

#[test]
fn queries_are_answered_repeatedly_with_hosts_and_ranks() {
    let lab = Lab::new();
    let running = lab.script("a:2,b", "sleep 100").start();
    running.wait_for(3, "sleep");
    let mut stream = connect(&running);
    assert!(matches!(receive(&mut stream), QueryReply::Job(_)));
    let named = [receive(&mut stream), receive(&mut stream)];
    let node = |node, host: &str, ranks: &[u32]| QueryReply::Node {
        node,
        host: host.to_owned(),
        ranks: ranks.to_vec(),
    };
    assert_eq!(named, [node(0, "a", &[0, 1]), node(1, "b", &[2])]);
    for _ in 0..3 {
        let replies = query(&mut stream);
        assert!(
            replies.len() == 2 && replies.iter().all(is_answer),
            "{replies:?}"
        );
    }
    // The next client is served when the first one has disconnected.
    let mut next = connect(&running);
    drop(stream);
    assert_eq!(query(&mut next).len(), 2);
    running.signal(Signal::SIGTERM);
    running.finish().expect(143);
}

#[test]
fn queries_report_ended_hosts_and_wait_once_for_a_stopped_one() {
    let lab = Lab::new();
    let running = lab
        .script("a,b,c", "[ $RMPI_RANK = 1 ] || exec sleep 100")
        .start();
    let sleeping = running.wait_for(2, "sleep");
    let mut stream = connect(&running);
    until("the second host is through", || {
        let replies = query(&mut stream);
        (replies[1] == QueryReply::Ended(1)).then_some(())
    });
    let daemon = common::parent_of(sleeping[1]).unwrap();
    send(daemon, Signal::SIGSTOP);
    let silent = |replies: &[QueryReply]| {
        let unseen = |reply: &QueryReply| matches!(reply, QueryReply::Unseen { why, .. } if why.starts_with("there was no answer"));
        replies.iter().filter(|reply| unseen(reply)).count()
    };
    assert_eq!(silent(&query(&mut stream)), 1);
    // The second query does not wait for the stopped daemon again; a unit test of the front checks that.
    assert_eq!(silent(&query(&mut stream)), 1);
    send(daemon, Signal::SIGCONT);
    running.signal(Signal::SIGTERM);
    running.finish().expect(143);
}

#[test]
fn hanging_or_malformed_query_clients_do_not_block_the_job_end() {
    let lab = Lab::new();
    let running = lab.script("a,b", "sleep 1").start();
    let mut malformed = connect(&running);
    malformed.write_all(b"GET / HTTP/1.1").unwrap();
    let mut hangs = connect(&running);
    hangs.write_all(&[QUERY]).unwrap();
    running.finish().expect(0);
}
