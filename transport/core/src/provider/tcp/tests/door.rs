// SPDX-License-Identifier: MIT OR Apache-2.0
//! Those who connect and say nothing, in great number.

use super::super::Tcp;
use super::super::sockets::{Sign, Sockets};
use super::super::system::System;
use super::hostile::{Liar, complaint, connect, host, until};

/// Whether the kernel says that somebody has connected.
fn is_called(tcp: &mut Tcp<System>) -> bool {
    let mut signs = Vec::new();
    tcp.links.sockets.look(&mut signs);
    signs.contains(&Sign::Door)
}

#[test]
fn a_crowd_that_says_nothing_wakes_nobody_again_and_again() {
    let mut tcp = host();
    let crowd: Vec<_> = (0..100).map(|_| connect(&tcp)).collect();
    until(&mut tcp, |tcp, _| tcp.links.shut_until_ns.is_some());
    assert!(!is_called(&mut tcp), "many wait, and there is no room");
    // They give way after a moment, and whoever knows the key is heard behind them.
    _ = Liar::join(&mut tcp, 1, 1);
    // So many may be ranks of a large job: nothing is said of them at once.
    assert_eq!(complaint(&mut tcp), "");
    drop(crowd);
}
