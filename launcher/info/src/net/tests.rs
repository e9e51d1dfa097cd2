// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

fn port(name: &str, leads_there: Option<bool>) -> PortReport {
    let gid = |index, text: &str, is_chosen, why: &str| Gid {
        index,
        text: text.into(),
        kind: "RoCE v2".into(),
        interface: Some("veth0".into()),
        is_chosen,
        why: why.into(),
    };
    PortReport {
        name: name.into(),
        link: "RoCE",
        state: "active",
        lid: None,
        packet_bytes: 1024,
        rate_mbps: 10_000,
        reads_poorly: false,
        gids: vec![
            gid(0, "fe80::1", false, "not used: link-local"),
            gid(1, "::ffff:10.0.0.1", true, "chosen: the first"),
        ],
        unfit: None,
        is_allowed: true,
        leads_there,
    }
}

fn report(ports: Vec<PortReport>, egress: Option<Egress>) -> NetReport {
    let device = DeviceReport {
        name: "rxe".into(),
        ports: Ok(ports),
    };
    NetReport {
        devices: Ok(vec![device]),
        rails: 1,
        rendezvous: Rendezvous::Auto,
        egress,
        memory: memory(None, None),
    }
}

fn memory(limit_bytes: Option<u64>, remedy: Option<&str>) -> LockedMemoryReport {
    LockedMemoryReport {
        limit_bytes,
        first_bytes: 600 << 10,
        most_bytes: 4 << 20,
        remedy: remedy.map(Into::into),
    }
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_port_is_shown_with_gids_and_reasons() {
    let page = page(&report(vec![port("rxe0:1", None)], None), "", None);
    let expected = "\
rxe0:1  RoCE, active, 10 Gb/s, packets of 1024 bytes
  GID  0  fe80::1          RoCE v2  veth0  not used: link-local
  GID  1  ::ffff:10.0.0.1  RoCE v2  veth0  chosen: the first
";
    assert!(page.text.starts_with(expected), "{}", page.text);
    assert!(
        page.text
            .ends_with("\nRanks on this host would use rxe0:1.\nLarge messages are read by their receivers (RMPI_NET_RENDEZVOUS).\n"),
        "{}",
        page.text
    );
    assert!(page.works);
}

#[test]
fn an_infiniband_port_shows_its_lid() {
    let port = PortReport {
        link: "InfiniBand",
        lid: Some(12),
        ..port("mlx5_0:1", None)
    };
    let page = page(&report(vec![port], None), "", None);
    assert!(
        page.text
            .starts_with("mlx5_0:1  InfiniBand, active, LID 12, 10 Gb/s, packets of 1024 bytes\n")
    );
}

#[test]
fn ranks_use_allowed_ports_in_turn() {
    let other = PortReport {
        is_allowed: false,
        ..port("rxe2:1", None)
    };
    let ports = vec![port("rxe0:1", None), port("rxe1:1", None), other];
    let page = page(&report(ports, None), "rxe0,rxe1", None);
    let last =
        "Ranks on this host would use rxe0:1, rxe1:1, in turn (RMPI_NET_DEVICES is \"rxe0,rxe1\").";
    assert!(page.text.lines().any(|line| line == last), "{}", page.text);
    assert!(
        page.text
            .contains("packets of 1024 bytes\n  not used: it is not in RMPI_NET_DEVICES\n")
    );
}

#[test]
fn without_a_usable_port_the_reason_is_shown() {
    let down = PortReport {
        unfit: Some("the port is down; look at its cable".into()),
        ..port("mlx5_0:1", None)
    };
    let found = page(&report(vec![down], None), "", None);
    assert!(!found.works);
    assert!(
        found
            .text
            .contains("\n  not used: the port is down; look at its cable\n")
    );
    assert!(
        found
            .text
            .ends_with("Ranks on this host cannot use InfiniBand or RoCE.\n")
    );

    let no_library = NetReport {
        devices: Err("libibverbs.so.1 cannot be loaded".into()),
        ..report(Vec::new(), None)
    };
    let found = page(&no_library, "", None);
    assert!(!found.works);
    assert!(
        found
            .text
            .starts_with("no network: libibverbs.so.1 cannot be loaded\n")
    );

    let no_device = NetReport {
        devices: Ok(Vec::new()),
        ..no_library
    };
    let found = page(&no_device, "", None);
    assert!(!found.works && joined(&found.text).contains("rdma link add rxe0 type rxe"));
}

#[test]
fn the_number_of_ports_per_rank_is_shown() {
    let ports = || vec![port("rxe0:1", None), port("rxe1:1", None)];
    let one = page(&report(ports(), None), "", None);
    assert!(!one.text.contains("RMPI_NET_RAILS"), "{}", one.text);
    let several = NetReport {
        rails: 2,
        ..report(ports(), None)
    };
    let several = joined(&page(&several, "", None).text);
    assert!(
        several.contains("in turn. Each rank opens 2 of them: "),
        "{several}"
    );
}

#[test]
fn a_device_open_error_is_shown() {
    let device = DeviceReport {
        name: "mlx5_0".into(),
        ports: Err("ibv_open_device failed: permission denied".into()),
    };
    let report = NetReport {
        devices: Ok(vec![device]),
        ..report(Vec::new(), None)
    };
    let page = page(&report, "", None);
    assert!(
        page.text
            .starts_with("mlx5_0: ibv_open_device failed: permission denied\n")
    );
    assert!(!page.works);
}

#[test]
fn memlock_limit_is_shown_with_the_bytes_needed() {
    let shown = |limit, remedy| joined(&memory_text(&memory(limit, remedy)));
    let needs =
        "a rank locks 600 KiB when it begins to use the network, at most 4096 KiB, and besides";
    let free = shown(None, None);
    assert!(
        free.starts_with("a process may lock as much memory as there is;"),
        "{free}"
    );
    assert!(free.contains(needs), "{free}");
    let tight = shown(Some(8 << 20), None);
    assert!(
        tight.contains("lock 8192 KiB of memory (ulimit -l)"),
        "{tight}"
    );
    assert!(tight.contains("`ulimit -l unlimited` is better"), "{tight}");
    let least = shown(Some(64 << 10), Some("at least 4096 KiB are needed"));
    assert!(
        least.contains("too little: at least 4096 KiB are needed"),
        "{least}"
    );
}

#[test]
fn a_port_is_unusable_with_too_small_a_memlock_limit() {
    let shown = |limit| {
        let report = NetReport {
            memory: memory(Some(limit), None),
            ..report(vec![port("rxe0:1", None)], None)
        };
        page(&report, "", None)
    };
    let tight = shown(500 << 10);
    assert!(!tight.works && tight.text.contains("\nBut they may not lock the memory"));
    let enough = shown(600 << 10);
    assert!(enough.works && !enough.text.contains("But they"));
}

#[test]
fn the_route_to_a_peer_names_its_ports() {
    let peer = Some(IpAddr::from([10, 0, 0, 2]));
    let shown = |ports, egress| {
        let page = page(&report(ports, Some(egress)), "", peer);
        (joined(&page.text), page.works)
    };
    let both = || vec![port("rxe0:1", Some(true)), port("rxe1:1", Some(false))];
    let through = || Egress::Through("veth0".into());

    let (text, works) = shown(both(), through());
    let expected = "Packets to 10.0.0.2 leave through veth0: rxe0:1 can reach it. rxe1:1 may not: RMPI_NET_DEVICES=rxe0:1 would";
    assert!(works && text.contains(expected), "{text}");

    let (text, works) = shown(vec![port("rxe0:1", Some(true))], through());
    assert!(works && text.ends_with("rxe0:1 can reach it."), "{text}");

    let (text, works) = shown(vec![port("rxe1:1", Some(false))], through());
    assert!(
        !works && text.contains("no port that ranks would use has an address of it"),
        "{text}"
    );

    let (text, works) = shown(both(), Egress::Nowhere);
    assert!(
        !works && text.contains("There is no way to 10.0.0.2"),
        "{text}"
    );

    let (text, works) = shown(both(), Egress::Here);
    assert!(
        works && text.ends_with("10.0.0.2 is an address of this host."),
        "{text}"
    );

    let (text, works) = shown(both(), Egress::Unknown("denied".into()));
    assert!(
        works && text.contains("does not say the way to 10.0.0.2: denied"),
        "{text}"
    );
}

#[test]
fn the_rendezvous_direction_is_shown_with_its_reason() {
    let rendezvous_text = |rendezvous, poor: bool| {
        let ports = ["rxe0:1", "rxe1:1"].map(|name| PortReport {
            reads_poorly: poor && name == "rxe1:1",
            ..port(name, None)
        });
        let report = NetReport {
            rendezvous,
            ..report(ports.into(), None)
        };
        joined(&page(&report, "", None).text)
    };
    for (rendezvous, poor, expected) in [
        (
            Rendezvous::Auto,
            false,
            "read by their receivers (RMPI_NET_RENDEZVOUS).",
        ),
        (
            Rendezvous::Auto,
            true,
            "for ranks that begin with rxe1:1 are written by their senders, since it has no more than one read",
        ),
        (
            Rendezvous::Read,
            true,
            "read by their receivers (RMPI_NET_RENDEZVOUS is \"read\"), though rxe1:1 has",
        ),
        (
            Rendezvous::Write,
            false,
            "written by their senders (RMPI_NET_RENDEZVOUS is \"write\").",
        ),
    ] {
        let rendezvous_text = rendezvous_text(rendezvous, poor);
        assert!(rendezvous_text.contains(expected), "{rendezvous_text}");
    }
}

#[test]
fn tcp_interfaces_for_large_messages_are_shown() {
    let one = |interface: &str, address: &str, unfit| AddressReport {
        interface: interface.into(),
        address: address.parse().unwrap(),
        unfit,
    };
    let all = vec![
        one("lo", "127.0.0.1", Some("leads to this host only")),
        one("eth0", "10.0.0.1", None),
        one("eth1", "10.1.0.1", None),
        one("eth0", "fd00::1", None),
    ];
    let text = |all: &[AddressReport], rails| joined(&addresses(&Ok(all.to_vec()), rails));
    assert!(text(&all, 4).contains("go over 2 of these interfaces at once"));
    for (all, rails) in [
        (&all[..], 1),
        (&all[..2], 4),
        (&[all[1].clone(), all[3].clone()], 4),
    ] {
        assert!(!text(all, rails).contains("RMPI_NET_RAILS"));
    }
}
