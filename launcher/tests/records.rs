// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with ranks that publish their network record and request records of other ranks. The ranks are this test
//! program, started again with the name of a role.
#![allow(clippy::unwrap_used)]

mod common;
use common::role::{ROLE, count, ranks, send_to_daemon, wrapped};
use nix::sys::socket::{MsgFlags, send};
use wireup::{BOOT_VARIABLE, Boot, MAX_DATAGRAM_BYTES, MAX_RECORD_BYTES, Record, ToDaemon, ToRank};

/// Not a test by itself: the program of a rank in its role.
#[test]
#[ignore = "a rank, started by the other tests through rmpiexec"]
fn rank_program() {
    let (Ok(boot), Ok(role)) = (std::env::var(BOOT_VARIABLE), std::env::var(ROLE)) else {
        return;
    };
    let boot = Boot::parse(&boot).expect("the daemon writes what the library reads");
    let rank = boot.rank;
    if role == "missing" && rank == 0 {
        return;
    }
    let (pid, publishes) = (std::process::id(), role != "silent" || rank == 1);
    let hello = ToDaemon::Hello {
        rank,
        pid,
        publishes,
    };
    send_to_daemon(boot.control_fd, &hello);
    match role.as_str() {
        "key" => {
            let stream = boot.stream_key.map(|key| key.0);
            println!("\nkey {:?} {stream:?}", boot.network_key);
        }
        "neighbours" => exchange_records(&boot),
        "late publisher" => publish_late(&boot),
        "dead publisher" => outlive(&boot),
        "wrong" => ask_wrongly(&boot),
        "deaf" => ask_without_listening(&boot),
        "quiet" => leave_together(&boot),
        "remark" => {
            let text = format!("tcp carries\nwhat rank {rank} says\x1b[2J");
            send_to_daemon(boot.control_fd, &ToDaemon::Remark { rank, text });
        }
        _ => miss(&role, &boot),
    }
    send_to_daemon(boot.control_fd, &ToDaemon::Finalized { rank });
}

#[test]
fn equal_remarks_of_all_ranks_are_printed_once() {
    for nodes in ["1", "3"] {
        let mut job = ranks(6, "remark");
        job.command.env("RMPI_LOCAL_NODES", nodes);
        let outcome = job.run().expect(0);
        let notices = outcome
            .err
            .lines()
            .filter(|line| line.contains("tcp carries"));
        let notices: Vec<&str> = notices.collect();
        assert_eq!(notices.len(), 1, "{}", outcome.err);
        assert!(notices[0].starts_with("rmpiexec: tcp carries what rank "));
        assert!(
            notices[0].ends_with(" says [2J (printed once per job)"),
            "{notices:?}"
        );
    }
}

fn publish(boot: &Boot, bytes: &[u8]) {
    let record = Record::new(bytes).unwrap();
    let rank = boot.rank;
    send_to_daemon(boot.control_fd, &ToDaemon::Publish { rank, record });
}

fn request_record(boot: &Boot, of: u32) {
    let rank = boot.rank;
    send_to_daemon(boot.control_fd, &ToDaemon::LookUp { rank, of });
}

/// Receives the next reply: the rank that was requested, and its record or the reason why there is none.
fn receive_reply(boot: &Boot) -> (u32, Result<Vec<u8>, String>) {
    let mut bytes = [0; MAX_DATAGRAM_BYTES];
    let length = nix::sys::socket::recv(boot.control_fd, &mut bytes, MsgFlags::empty()).unwrap();
    match ToRank::decode(&bytes[..length]) {
        Ok(ToRank::Record { rank, record }) => (rank, Ok(record.bytes().to_vec())),
        Ok(ToRank::NoRecord { rank, why }) => (rank, Err(why)),
        other => panic!("no answer to a question: {other:?}"),
    }
}

/// Each rank publishes its record, and requests the records of all ranks.
fn exchange_records(boot: &Boot) {
    let round = std::env::var("RMPI_TEST_ROUND").map_or(0, |round| round.parse().unwrap());
    let record = |rank: u32| [rank.to_le_bytes(), u32::to_le_bytes(round)].concat();
    // Half of the ranks send requests before they have published.
    let early = boot.rank.is_multiple_of(2);
    if !early {
        publish(boot, &record(boot.rank));
    }
    for rank in 0..boot.size {
        request_record(boot, rank);
    }
    if early {
        publish(boot, &record(boot.rank));
    }
    let mut replies: Vec<_> = (0..boot.size).map(|_| receive_reply(boot)).collect();
    replies.sort();
    let expected: Vec<_> = (0..boot.size)
        .map(|rank| (rank, Ok(record(rank))))
        .collect();
    assert_eq!(replies, expected);
    println!("\nknows all");
    // As in `MPI_Finalize`, a rank waits until all ranks are quiet, since a slower rank may still need its record.
    wait_until_all_are_quiet(boot);
}

/// Rank 0 requests the record of rank 1 and then that of rank 2. Rank 1 publishes only after rank 0 has received the
/// reply about rank 2.
fn publish_late(boot: &Boot) {
    match boot.rank {
        0 => {
            request_record(boot, 1);
            request_record(boot, 2);
            assert_eq!(receive_reply(boot), (2, Ok(vec![2])));
            publish(boot, &[0]);
            assert_eq!(receive_reply(boot), (1, Ok(vec![1])));
            println!("\nin order");
        }
        1 => {
            request_record(boot, 0);
            assert_eq!(receive_reply(boot), (0, Ok(vec![0])));
            publish(boot, &[1]);
        }
        _ => publish(boot, &[2]),
    }
}

/// Rank 0 requests the record of rank 1 again when rank 1 has ended.
fn outlive(boot: &Boot) {
    if boot.rank == 1 {
        publish(boot, &std::process::id().to_le_bytes());
        // Rank 1 waits for a record of rank 0, since the request of rank 0 may still be on its way from another node.
        request_record(boot, 0);
        assert_eq!(receive_reply(boot), (0, Ok(vec![0])));
        return;
    }
    request_record(boot, 1);
    let first = receive_reply(boot);
    publish(boot, &[0]);
    let pid = u32::from_le_bytes(first.1.clone().unwrap().try_into().unwrap());
    let process = format!("/proc/{pid}");
    common::until("rank 1 ends", || {
        (!std::path::Path::new(&process).exists()).then_some(())
    });
    request_record(boot, 1);
    assert_eq!(receive_reply(boot), first);
    println!("\nthe record stays");
}

/// Rank 1 requests the record of rank 0, which never publishes.
fn miss(role: &str, boot: &Boot) {
    if boot.rank == 1 {
        request_record(boot, 0);
        let (rank, answer) = receive_reply(boot);
        println!("\nabout rank {rank}: {}", answer.unwrap_err());
        publish(boot, &[1]);
    }
    if role == "silent" && boot.rank == 0 {
        // Rank 0 does not finalize before rank 1 has its reply.
        request_record(boot, 1);
        assert!(receive_reply(boot).1.is_ok());
    }
}

/// Requests records of ranks that do not exist, and publishes an invalid record.
fn ask_wrongly(boot: &Boot) {
    for rank in [boot.size, u32::MAX] {
        request_record(boot, rank);
        let (about, why) = receive_reply(boot);
        assert_eq!(about, rank);
        println!("\n{}", why.unwrap_err());
    }
    let rank = boot.rank;
    let record = Record::new(&[1; MAX_RECORD_BYTES]).unwrap();
    let mut bytes = ToDaemon::Publish { rank, record }.encode();
    bytes.push(1);
    for _ in 0..3 {
        send(boot.control_fd, &bytes, MsgFlags::empty()).unwrap();
    }
    publish(boot, &[1]);
    request_record(boot, rank);
    assert_eq!(receive_reply(boot), (rank, Ok(vec![1])));
}

fn wait_until_all_are_quiet(boot: &Boot) {
    send_to_daemon(boot.control_fd, &ToDaemon::Quiet { rank: boot.rank });
    receive_all_quiet(boot);
}

fn receive_all_quiet(boot: &Boot) {
    let mut bytes = [0; MAX_DATAGRAM_BYTES];
    let length = nix::sys::socket::recv(boot.control_fd, &mut bytes, MsgFlags::empty()).unwrap();
    assert_eq!(ToRank::decode(&bytes[..length]), Ok(ToRank::AllQuiet));
}

/// Each rank reports that it is quiet, and waits until all ranks are quiet. Rank 0 sends its report only after all
/// other ranks have sent theirs.
fn leave_together(boot: &Boot) {
    let file = std::env::var("RMPI_TEST_FILE").unwrap();
    let folder = std::path::Path::new(&file);
    if boot.rank == 0 {
        common::until("the others are quiet", || {
            let notices = std::fs::read_dir(folder).unwrap().count();
            (notices + 1 == boot.size as usize).then_some(())
        });
        std::fs::write(folder.join("last"), "").unwrap();
    }
    send_to_daemon(boot.control_fd, &ToDaemon::Quiet { rank: boot.rank });
    std::fs::write(folder.join(boot.rank.to_string()), "").unwrap();
    receive_all_quiet(boot);
    assert!(folder.join("last").exists(), "rank 0 has not said it yet");
}

/// Rank 0 sends many requests for a rank that does not exist, without reading replies, and then a request for rank 1.
/// Rank 1 publishes when the socket of rank 0 is full.
fn ask_without_listening(boot: &Boot) {
    let file = std::env::var("RMPI_TEST_FILE").unwrap();
    if boot.rank == 1 {
        request_record(boot, 0);
        assert_eq!(receive_reply(boot), (0, Ok(vec![0])));
        publish(boot, &[1]);
        request_record(boot, 1);
        assert_eq!(receive_reply(boot), (1, Ok(vec![1])));
        return std::fs::write(&file, "").unwrap();
    }
    for _ in 0..20_000 {
        request_record(boot, boot.size);
    }
    request_record(boot, 1);
    publish(boot, &[0]);
    common::until("rank 1 has published", || {
        std::path::Path::new(&file).exists().then_some(())
    });
    loop {
        match receive_reply(boot) {
            (1, Ok(record)) => return assert_eq!(record, [1]),
            (rank, Err(_)) => assert_eq!(rank, boot.size),
            other => panic!("{other:?}"),
        }
    }
}

/// Runs a test with one daemon and with several daemons, since the replies must be the same.
fn on_nodes(test: impl Fn(u32)) {
    [1, 2, 3].into_iter().for_each(test);
}

/// A job whose ranks are divided among this many daemons.
fn on(nodes: u32, count: u32, role: &str) -> common::Job {
    divided(nodes, ranks(count, role))
}

fn divided(nodes: u32, mut job: common::Job) -> common::Job {
    job.command.env("RMPI_LOCAL_NODES", nodes.to_string());
    job
}

#[test]
fn network_keys_are_equal_in_a_job_and_have_31_and_128_bits() {
    on_nodes(|nodes| {
        let keys = || {
            let outcome = on(nodes, 3, "key").run().expect(0);
            let lines = outcome.out.lines();
            let mut keys: Vec<String> = lines
                .filter_map(|line| line.strip_prefix("key Some(")?.strip_suffix(')'))
                .map(str::to_owned)
                .collect();
            assert_eq!(keys.len(), 3, "{}", outcome.out);
            keys.dedup();
            assert_eq!(keys.len(), 1, "{}", outcome.out);
            let (network, stream) = keys[0].split_once(") Some(").unwrap();
            (
                network.parse::<u32>().unwrap(),
                stream.parse::<u128>().unwrap(),
            )
        };
        let (one, other) = (keys(), keys());
        assert!(
            one.0 < 1 << 31 && other.0 < 1 << 31 && one.0 != other.0,
            "{one:?} {other:?}"
        );
        let halves = |key: u128| [key >> 64, key & u128::from(u64::MAX)];
        let (one, other) = (halves(one.1), halves(other.1));
        assert!(
            one[0] != other[0] && one[1] != other[1],
            "{one:?} {other:?}"
        );
        assert!(one[0] != one[1], "{one:?}");
    });
}

#[test]
fn sixty_four_ranks_get_each_others_records() {
    on_nodes(|nodes| {
        let outcome = on(nodes, 64, "neighbours").run().expect(0);
        assert_eq!(count(&outcome, "knows all"), 64, "{}", outcome.out);
        assert_eq!(outcome.err, "");
    });
}

#[test]
fn the_next_program_of_a_script_has_records_of_its_own() {
    on_nodes(|nodes| {
        let script = "RMPI_TEST_ROUND=1 PROGRAM && RMPI_TEST_ROUND=2 PROGRAM";
        let outcome = divided(nodes, wrapped(8, "neighbours", script))
            .run()
            .expect(0);
        assert_eq!(count(&outcome, "knows all"), 16, "{}", outcome.out);
    });
}

#[test]
fn a_pending_record_request_does_not_block_others() {
    on_nodes(|nodes| {
        let outcome = on(nodes, 3, "late publisher").run().expect(0);
        assert_eq!(count(&outcome, "in order"), 1, "{}", outcome.out);
    });
}

#[test]
fn the_record_of_an_ended_rank_stays_available() {
    on_nodes(|nodes| {
        let outcome = on(nodes, 2, "dead publisher").run().expect(0);
        assert_eq!(count(&outcome, "the record stays"), 1, "{}", outcome.out);
    });
}

#[test]
fn a_missing_record_is_reported_with_the_reason() {
    on_nodes(|nodes| {
        for (role, why) in [
            (
                "silent",
                "uses no network; is RMPI_PROVIDERS the same for all ranks?",
            ),
            ("missing", "has ended without an address on the network"),
            (
                "through",
                "is through with MPI, and its address on the network is not known any more",
            ),
        ] {
            let outcome = on(nodes, 2, role).run().expect(0);
            let line = format!("about rank 0: it {why}");
            assert_eq!(count(&outcome, &line), 1, "{role}: {}", outcome.out);
        }
    });
}

#[test]
fn invalid_ranks_and_records_get_an_error_reply() {
    on_nodes(|nodes| {
        let outcome = on(nodes, 2, "wrong").run().expect(0);
        assert_eq!(
            count(&outcome, "there is no rank 2: the job has 2"),
            2,
            "{}",
            outcome.out
        );
        let last = format!("there is no rank {}: the job has 2", u32::MAX);
        assert_eq!(count(&outcome, &last), 2, "{}", outcome.out);
        let reports = outcome
            .err
            .matches("a network address of 257 bytes, expected at most 256");
        assert_eq!(reports.count(), 2, "once for each rank: {}", outcome.err);
    });
}

#[test]
fn quiet_ranks_are_released_when_all_are_quiet() {
    on_nodes(|nodes| {
        let folder = tempfile::tempdir().unwrap();
        let mut job = on(nodes, 8, "quiet");
        job.command.env("RMPI_TEST_FILE", folder.path());
        job.run().expect(0);
    });
}

#[test]
fn a_rank_that_reads_no_replies_blocks_no_other() {
    on_nodes(|nodes| {
        let folder = tempfile::tempdir().unwrap();
        let mut job = on(nodes, 2, "deaf");
        job.command
            .env("RMPI_TEST_FILE", folder.path().join("file"));
        job.run().expect(0);
    });
}
