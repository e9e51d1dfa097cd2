// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a port whose link and whose addresses change.

use super::super::super::error_text::Unfit;
use super::*;

/// Switches the link of rxe0 on again, and restores the route and the neighbour that were lost with the link.
fn link_up() {
    shell(
        "ip link set $RXE_A_DEV up
         ip route replace $RXE_B_ADDR dev $RXE_A_DEV src $RXE_A_ADDR table 101
         ip neigh replace $RXE_B_ADDR dev $RXE_A_DEV nud permanent \
            lladdr $(cat /sys/class/net/$RXE_B_DEV/address)",
    );
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn a_port_that_is_down_reports_it_and_cannot_be_opened() {
    let mut a = GuestPort::open("rxe0", Q_KEY);
    let gid = a.device.facts().gid;
    let event_fd = a.device.event_fd().unwrap().as_raw_fd();
    shell("ip link set $RXE_A_DEV down");
    assert!(is_readable(event_fd, 10_000));
    a.wait_event(PortEvent::PortDown);
    a.device.refresh().unwrap();
    assert_eq!((a.device.facts().is_up, a.device.facts().gid), (false, gid));
    let opened = VerbsDevice::open("rxe0", 1, &DEPTHS, &NetTerms::DEFAULT, Q_KEY, None).map(drop);
    let message = opened.unwrap_err().to_string();
    assert!(
        message.contains("rxe0:1 cannot be used: the port is down"),
        "{message}"
    );
    let found = list(HostRoute::Anywhere, &NetTerms::DEFAULT).unwrap();
    let found = found.iter().find(|found| found.name == "rxe0").unwrap();
    assert_eq!(found.ports.as_ref().unwrap()[0].unfit, Some(Unfit::Down(1)));
    link_up();
    a.wait_event(PortEvent::PortUp);
    a.device.refresh().unwrap();
    assert_eq!((a.device.facts().is_up, a.device.facts().gid), (true, gid));
    // Addresses come back one by one, each with events. When all events were taken, the descriptor is not readable any
    // more.
    let start = Instant::now();
    while is_readable(event_fd, 0) {
        assert!(start.elapsed() < LIMIT);
        while a.device.next_event().is_some() {}
    }
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn a_port_that_comes_back_up_works_again() {
    let has_failed = |done: &PortCompletion| done.status != WorkStatus::Success;
    let (mut a, mut b) = two_ports();
    let (left, _) = joined(&mut a, &mut b);
    b.post_buffers(Receives::Shared, 4);
    b.post_buffers(Receives::Datagrams, 4);
    a.post_buffers(Receives::Datagrams, 3);
    let handle = a.device.create_address_handle(&b.address()).unwrap();
    let (here, there) = (a.device.datagram_number(), b.device.datagram_number());
    let to = mailbox(handle, there);

    shell("ip link set $RXE_A_DEV down");
    a.wait_event(PortEvent::PortDown);
    a.send(left, 1, WorkBody::Inline(b"lost"));
    let body = WorkBody::Inline(b"lost");
    a.device.post_datagram(to, 2, body, true).unwrap();
    // Both sends fail immediately: Soft-RoCE breaks the two queue pairs.
    let done = a.wait(CqKind::Sends, 2);
    assert!(done.iter().all(has_failed), "{done:?}");

    // The buffers come back, and are posted again.
    let back = a.wait(CqKind::Receives, 3);
    let flushed = [100, 101, 102].map(|work| (work, WorkStatus::Flushed));
    assert_eq!(statuses(&back), flushed);
    a.post_buffers(Receives::Datagrams, 3);
    // Every datagram has a completion, in order, however often the queue pair breaks.
    for work in 10..50 {
        a.device.post_datagram(to, work, body, true).unwrap();
    }
    let done = a.wait(CqKind::Sends, 40);
    assert!(done.iter().map(|done| done.work).eq(10..50), "{done:?}");
    assert!(done.iter().all(has_failed), "{done:?}");

    link_up();
    a.wait_event(PortEvent::PortUp);
    // Some of the buffers may have completed again meanwhile.
    let mut one = [PortCompletion::default()];
    while a.device.poll(CqKind::Receives, &mut one) != 0 {}
    assert!(a.device.repair.is_none());
    a.post_buffers(Receives::Datagrams, 3);
    a.device.destroy_address_handle(handle);
    let handle = a.device.create_address_handle(&b.address()).unwrap();
    let (to, body) = (mailbox(handle, there), WorkBody::Inline(b"again"));
    a.device.post_datagram(to, 3, body, true).unwrap();
    let sent = statuses(&a.wait(CqKind::Sends, 1));
    assert_eq!(sent, [(3, WorkStatus::Success)]);
    assert_eq!(b.wait(CqKind::Receives, 1)[0].source, here);
    let back = b.device.create_address_handle(&a.address()).unwrap();
    let (to, body) = (mailbox(back, here), WorkBody::Inline(b"answer"));
    b.device.post_datagram(to, 4, body, true).unwrap();
    assert_eq!(a.wait(CqKind::Receives, 1)[0].bytes as usize, GRH_BYTES + 6);

    a.device.destroy(left);
    let (left, _) = joined(&mut a, &mut b);
    a.send(left, 5, WorkBody::Inline(b"again"));
    let sent = statuses(&a.wait(CqKind::Sends, 1));
    assert_eq!(sent, [(5, WorkStatus::Success)]);
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn a_gid_that_moves_in_the_table_is_found_again() {
    let mut a = GuestPort::open("rxe0", Q_KEY);
    let before = a.device.facts().clone();
    let own = gid::to_text(before.gid);
    let change = |what: &str, address: &str| {
        shell(&format!("ip addr {what} {address}/24 dev $RXE_A_DEV"));
        // The GID table changes a little later.
        let start = Instant::now();
        let wanted = format!("::ffff:{address}");
        while place_in_table(&wanted).is_some() != (what == "add") {
            assert!(start.elapsed() < LIMIT, "{what} {address}");
        }
        place_in_table(&wanted)
    };
    change("add", "10.78.0.1");
    change("del", "10.77.0.1");
    // The new address takes the index of the deleted one.
    assert_eq!(change("add", "10.79.0.1"), Some(before.gid_index.into()));
    let place = change("add", "10.77.0.1");
    assert_eq!(
        a.wait_event(PortEvent::AddressChanged).last(),
        Some(&PortEvent::AddressChanged)
    );
    a.device.refresh().unwrap();
    let moved = a.device.facts();
    assert_eq!(gid::to_text(moved.gid), own);
    assert_eq!(Some(moved.gid_index.into()), place);
    assert_ne!(moved.gid_index, before.gid_index);
    // When the address is gone, another one is chosen.
    change("del", "10.77.0.1");
    a.device.refresh().unwrap();
    assert_eq!(gid::to_text(a.device.facts().gid), "::ffff:10.79.0.1");
    change("del", "10.79.0.1");
    assert_eq!(change("add", "10.77.0.1"), Some(before.gid_index.into()));
    change("del", "10.78.0.1");
    link_up();
    a.device.refresh().unwrap();
    assert_eq!(*a.device.facts(), before);
}

/// The index of an address in rxe0's GID table.
fn place_in_table(address: &str) -> Option<u32> {
    let devices = list(HostRoute::Anywhere, &NetTerms::DEFAULT).unwrap();
    let device = devices.iter().find(|device| device.name == "rxe0").unwrap();
    let all = &device.ports.as_ref().unwrap()[0].gids.all;
    let found = all
        .iter()
        .find(|candidate| gid::to_text(candidate.entry.gid) == address);
    found.map(|candidate| candidate.entry.index)
}
