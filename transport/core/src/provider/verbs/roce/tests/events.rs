// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of completion events, which end a sleep.

use std::os::fd::AsRawFd;
use std::time::Duration;

use super::super::super::port::{CqKind, Receives, VerbsPort};
use super::side::{Side, end, joined};
use crate::wait;

/// Whether a completion event is raised within this time.
fn is_woken(side: &Side, within: Duration) -> bool {
    let event_fd = side.port.event_fd().unwrap().as_raw_fd();
    wait::poll_readable(&[event_fd], within)
}

const SOON: Duration = Duration::from_millis(5);
const LATE: Duration = Duration::from_secs(20);

#[test]
fn a_packet_before_or_after_arming_wakes() {
    let (mut sides, [here, _]) = joined();
    sides[1].give(Receives::Shared, 0, 4);
    assert_eq!(sides[1].port.arm(), Ok(()));
    assert!(!is_woken(&sides[1], SOON));
    assert!(sides[0].send(here, 1, b"x"));
    assert!(is_woken(&sides[1], LATE));
    sides[1].port.ack_events();
    assert_eq!(sides[1].done(CqKind::Receives).len(), 1);
    assert!(!is_woken(&sides[1], SOON));
    // The message waits in the socket when the process begins to sleep.
    assert!(sides[0].send(here, 2, b"x"));
    assert_eq!(sides[1].port.arm(), Ok(()));
    assert!(is_woken(&sides[1], LATE));
    // The message was read from the socket, but its completion was not polled yet.
    sides[1].port.turn();
    sides[1].port.ack_events();
    assert_eq!(sides[1].port.arm(), Ok(()));
    assert!(is_woken(&sides[1], LATE));
}

#[test]
fn a_sleeping_process_wakes_to_retransmit() {
    let (mut sides, [here, there]) = joined();
    // The message cannot be received: its destination queue pair is destroyed.
    sides[1].port.destroy(there);
    assert!(sides[0].send(here, 1, b"x"));
    let mut wakes = 0;
    loop {
        assert_eq!(sides[0].port.arm(), Ok(()));
        if !sides[0].done(CqKind::Sends).is_empty() {
            break;
        }
        assert!(is_woken(&sides[0], LATE), "it would sleep for ever");
        sides[0].port.ack_events();
        sides[0].port.turn();
        wakes += 1;
    }
    // The process wakes once for each retransmission, and at the end.
    assert!((3..16).contains(&wakes), "{wakes}");
}

#[test]
fn a_deadline_that_is_set_after_arming_wakes_too() {
    let (mut sides, [here, there]) = joined();
    sides[1].port.destroy(there);
    assert_eq!(sides[0].port.arm(), Ok(()));
    assert!(!is_woken(&sides[0], SOON));
    assert!(sides[0].send(here, 1, b"x"));
    assert!(is_woken(&sides[0], LATE));
    sides[0].port.ack_events();
    assert!(!is_woken(&sides[0], Duration::ZERO), "no process sleeps");
    end(&mut sides, 0);
}
