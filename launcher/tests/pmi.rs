// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of programs that use MPICH's process management, that is, exchange addresses through PMI-1. The programs of
//! these tests send the messages of PMI-1 themselves.
#![allow(clippy::unwrap_used)]

mod common;
use common::lab::Lab;
use common::{Job, rmpiexec};

/// Beginning of a program that sends lines to the daemon and reads replies. `ask` sends a line and waits for the reply.
const CLIENT: &str = r#"
import os, sys
fd, rank, size = (int(os.environ[name]) for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE"))
def say(line):
    os.write(fd, (line + "\n").encode())
def hear():
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            sys.exit("closed")
        line += byte
    return line.decode().strip()
def ask(line):
    say(line)
    return hear()
"#;

/// Two rounds: in each round, every rank puts five pairs, enters a fence, and gets the pairs of all ranks.
const EXCHANGE: &str = r#"
assert ask("cmd=init pmi_version=1 pmi_subversion=1").startswith("cmd=response_to_init rc=0")
for round in range(2):
    for part in range(5):
        assert ask(f"cmd=put kvsname=x key=k{round}.{rank}.{part} value={rank * 7 + part}") == "cmd=put_result rc=0"
    assert ask("cmd=barrier_in") == "cmd=barrier_out rc=0"
    for other in range(size):
        for part in range(5):
            answer = ask(f"cmd=get kvsname=x key=k{round}.{other}.{part}")
            assert answer == f"cmd=get_result rc=0 value={other * 7 + part}", answer
assert ask("cmd=get kvsname=x key=no") == "cmd=get_result rc=1 msg=key_not_found"
mapping = ask("cmd=get kvsname=x key=PMI_process_mapping")
assert ask("cmd=finalize") == "cmd=finalize_ack rc=0"
print(rank, size, mapping.split("value=")[1])
"#;

fn program(text: &str) -> String {
    format!("{CLIENT}{text}")
}

fn job(ranks: &str, text: &str) -> Job {
    rmpiexec(["-n", ranks, "python3", "-c", &program(text)])
}

fn exchanged(out: &str, ranks: usize, mapping: &str) {
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_by_key(|line| line.split(' ').next().unwrap().parse::<usize>().unwrap());
    let expected: Vec<String> = (0..ranks)
        .map(|rank| format!("{rank} {ranks} {mapping}"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn ranks_get_the_pmi_pairs_of_all_after_a_fence() {
    for ranks in [1, 2, 5] {
        let outcome = job(&ranks.to_string(), EXCHANGE).run().expect(0);
        exchanged(&outcome.out, ranks, &format!("(vector,(0,1,{ranks}))"));
        assert_eq!(outcome.err, "");
    }
}

#[test]
fn pmi_pairs_reach_other_nodes() {
    for (nodes, mapping) in [("2", "(vector,(0,1,3),(1,1,2))"), ("5", "(vector,(0,5,1))")] {
        let mut job = job("5", EXCHANGE);
        job.command.env("RMPI_LOCAL_NODES", nodes);
        exchanged(&job.run().expect(0).out, 5, mapping);
    }
    let lab = Lab::new();
    let arguments = ["-n", "3", "python3", "-c", &program(EXCHANGE)];
    let outcome = lab.job("a:2,b", &arguments).run().expect(0);
    exchanged(&outcome.out, 3, "(vector,(0,1,2),(1,1,1))");
}

#[test]
fn pmi_variables_of_another_launcher_are_not_inherited() {
    let mut job = job("2", EXCHANGE);
    job.command.envs([
        ("PMI_FD", "77"),
        ("PMI_RANK", "5"),
        ("PMI_SIZE", "9"),
        ("PMI_PORT", "n1:7"),
    ]);
    exchanged(&job.run().expect(0).out, 2, "(vector,(0,1,2))");
}

#[test]
fn a_pmi_abort_or_exit_without_finalize_ends_the_job() {
    // Rank 1 exits by itself after the abort, before the launcher ends it.
    let leaves = "if rank == 1:\n    say('cmd=abort exitcode=9')\n    sys.exit(9)\nhear()";
    for abort in ["if rank == 1: say('cmd=abort exitcode=9')\nhear()", leaves] {
        let outcome = job("3", abort).run().expect(9);
        assert!(outcome.err.contains("rank 1"), "{}", outcome.err);
        assert!(
            outcome.err.contains("called MPI_Abort with code 9"),
            "{}",
            outcome.err
        );
    }
    let leave =
        "ask('cmd=init pmi_version=1 pmi_subversion=1')\nif rank != 1: ask('cmd=barrier_in')";
    let outcome = job("3", leave).run();
    assert_ne!(outcome.code, Some(0));
    assert!(
        outcome.err.contains("left without MPI_Finalize"),
        "{}",
        outcome.err
    );
}

#[test]
fn a_fence_does_not_wait_for_ranks_that_have_ended() {
    let text = "\
if rank == 1: os._exit(3)
ask('cmd=init pmi_version=1 pmi_subversion=1')
ask('cmd=barrier_in')
ask('cmd=finalize')
print('through')
";
    for nodes in ["1", "2", "3"] {
        let mut job = rmpiexec(["--keep-going", "-n", "3", "python3", "-c", &program(text)]);
        job.command.env("RMPI_LOCAL_NODES", nodes);
        let outcome = job.run();
        assert_eq!(
            outcome.out, "through\nthrough\n",
            "{nodes}: {}",
            outcome.err
        );
    }
}

#[test]
fn malformed_pmi_requests_do_not_affect_other_ranks() {
    let malformed = r#"
import random
if rank == 0:
    for line in ["cmd=", "=", "cmd=get", "cmd=put key=a", "cmd=barrier", "x" * 3000, "cmd=get key=" + "k" * 5000, "mcmd=spawn", "endcmd"]:
        say(line)
    # Replies that are not read: the daemon stops reading requests, and continues when they are read.
    os.set_blocking(fd, False)
    sent = 0
    try:
        while sent < 4000000:
            sent += os.write(fd, b"cmd=get key=PMI_process_mapping\n" * 100)
    except BlockingIOError:
        pass
    assert sent < 4000000
    os.write(1, b"full\n")
elif rank == 1:
    os.write(fd, bytes(random.Random(7).choices(range(32, 256), k=70000)))
    try:
        while os.read(fd, 4096):
            pass
    except ConnectionResetError:
        pass
    print("closed")
else:
    for part in range(200):
        assert ask(f"cmd=put key=k{part} value=v") == "cmd=put_result rc=0"
    # More than there is room for.
    kept = [ask("cmd=put key=%d value=%s" % (part, "v" * 1000)) for part in range(1400)]
    assert kept[0] == "cmd=put_result rc=0" and kept[-1] == "cmd=put_result rc=-1 msg=no_room", kept
    assert ask("cmd=put key=a value=" + "v" * 1025) == "cmd=put_result rc=-1 msg=too_long"
    print("kept")
"#;
    let outcome = job("3", malformed).run().expect(0);
    let mut lines: Vec<&str> = outcome.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["closed", "full", "kept"]);
    assert!(
        outcome
            .err
            .contains("rank 1 has lost its PMI connection: the program sent a line of "),
        "{}",
        outcome.err
    );
}
