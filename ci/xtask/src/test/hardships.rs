// SPDX-License-Identifier: MIT OR Apache-2.0
//! Part of the stage `faults`: jobs where something is missing or limited. The job runs nevertheless, or reports what
//! is missing.

use super::{Context, Tally, faults, jobs};
use crate::process::Finished;
use crate::tree::{command, make_folder, target};
use std::time::Duration;

/// A command for bash, its exit code, and texts that it must print.
struct Hardship {
    name: &'static str,
    line: &'static str,
    code: i32,
    /// Texts that must be printed, on either stream.
    texts: &'static [&'static str],
}

const HARDSHIPS: &[Hardship] = &[
    Hardship {
        name: "a wrapper closes the inherited descriptors",
        line: "rmpiexec -n 4 bash -c 'for ((i = 3; i < 200; i++)); do eval \"exec $i>&-\"; done; exec ./exchange'",
        code: 0,
        texts: &["well"],
    },
    Hardship {
        name: "process_vm_readv is forbidden",
        line: "rmpiexec -n 4 ./without process_vm_readv ./exchange",
        code: 0,
        texts: &["well"],
    },
    Hardship {
        name: "rmpi-queues may not call process_vm_readv",
        line: "rmpiexec -n 2 ./victim wait 0 0 0 & for ((i = 0; i < 100; i++)); do out=$(./without process_vm_readv rmpi-queues --json $!); \
               [[ $out == *'\"rank\": 0,'*'\"rank\": 1,'* ]] && break; sleep 0.1; done; kill $!; wait; echo \"$out\"",
        code: 0,
        texts: &["\"rank\": 0,", "\"rank\": 1,"],
    },
    Hardship {
        name: "memfd_create is forbidden",
        line: "./without memfd_create rmpiexec -n 8 ./exchange && ls /dev/shm | grep -c rmpi-segment; ./without memfd_create rmpi-info",
        code: 0,
        texts: &[
            "well\n0\n",
            "the ranks of a node share a file of /dev/shm: memfd_create: operation not permitted",
        ],
    },
    Hardship {
        name: "memfd_create is forbidden under another launcher",
        line: "rmpiexec -n 4 env -u RMPI_BOOT ./without memfd_create ./exchange",
        code: 0,
        texts: &["well"],
    },
    Hardship {
        name: "memfd_create is forbidden and /dev/shm is smaller than in any container",
        line: "unshare --user --map-root-user --mount bash -c 'mount -t tmpfs -o size=64k none /dev/shm \
               && exec ./without memfd_create rmpiexec -n 16 ./exchange'",
        code: 1,
        texts: &["/dev/shm is full or too small for 110956544 bytes: enlarge it"],
    },
    Hardship {
        name: "/dev/shm is full, and smaller than in any container",
        line: "unshare --user --map-root-user --mount bash -c 'mount -t tmpfs -o size=64k none /dev/shm \
               && head -c 64k /dev/zero > /dev/shm/full && exec rmpiexec -n 16 ./exchange'",
        code: 0,
        texts: &["well"],
    },
    Hardship {
        name: "ranks may have few descriptors",
        line: "rmpiexec -n 4 bash -c 'ulimit -n 20; exec ./exchange'",
        code: 0,
        texts: &["well"],
    },
    Hardship {
        name: "the launcher raises the soft limit of descriptors for itself alone",
        line: "ulimit -S -n 30; rmpiexec -n 32 ./exchange && rmpiexec -n 2 bash -c 'ulimit -S -n'",
        code: 0,
        texts: &["well\n30\n30\n"],
    },
    Hardship {
        name: "the hard limit of descriptors is too small",
        line: "ulimit -n 30; rmpiexec -n 32 ./exchange",
        code: 1,
        texts: &["open files in the launcher, the limit is 30: raise it (ulimit -Hn)"],
    },
    Hardship {
        name: "the limit of address space is small and large enough",
        line: "ulimit -v 200000; rmpiexec -n 8 ./exchange",
        code: 0,
        texts: &["well"],
    },
    Hardship {
        name: "the limit of address space is too small for the segment of so many ranks",
        line: "ulimit -v 50000; rmpiexec -n 128 ./exchange",
        code: 16,
        texts: &[
            "MPI_Init failed: the node segment of",
            "raise the limit of address space (ulimit -v) or start fewer ranks",
        ],
    },
    Hardship {
        name: "the memory of the program is too small",
        line: "rmpiexec -n 2 bash -c 'ulimit -v 130000; exec ./exchange 67108864'",
        code: 3,
        texts: &["no memory for", "called MPI_Abort with code 3"],
    },
    Hardship {
        name: "standard output is a full disk",
        line: "rmpiexec -n 2 ./exchange > /dev/full",
        code: 1,
        texts: &["cannot write standard output: no space left on device"],
    },
    Hardship {
        name: "standard output is closed",
        line: "rmpiexec -n 2 ./exchange >&-",
        code: 1,
        texts: &["cannot write standard output: it is closed"],
    },
];

/// Runs all of them.
pub(super) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let prefix = context.prefix()?;
    let build = target().join("faults");
    make_folder(&build)?;
    for program in ["exchange", "victim", "without"] {
        faults::compile(&prefix, &format!("{program}.c"), &build.join(program))?;
    }
    for hardship in HARDSHIPS {
        if hardship.line.starts_with("unshare") && !may_unshare() {
            println!(
                "  left out, since this user may not mount anything: {}",
                hardship.name
            );
            continue;
        }
        let line = format!(
            "cd {} && PATH={}:$PATH\n{}",
            build.display(),
            prefix.join("bin").display(),
            hardship.line
        );
        tally.check(hardship.name, || {
            let mut shell = command("bash");
            shell.args(["-c", &line]);
            let cookie = jobs::Cookie::new(&build)?;
            let done = jobs::run(shell, &cookie, LIMIT)?;
            let left = cookie.leftovers(jobs::LEFTOVER_GRACE).err();
            let wrong = judge(hardship, &done, left);
            if wrong.is_empty() {
                return Ok(());
            }
            Err(format!(
                "{}\nprinted: {}{}",
                wrong.join("\n"),
                done.stdout,
                done.stderr
            ))
        });
    }
    Ok(())
}

fn may_unshare() -> bool {
    let mut attempt = command("unshare");
    attempt.args([
        "--user",
        "--map-root-user",
        "--mount",
        "mount",
        "-t",
        "tmpfs",
        "none",
        "/dev/shm",
    ]);
    attempt.output().is_ok_and(|done| done.status.success())
}

fn judge(hardship: &Hardship, done: &Finished, left: Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    if done.timed_out || done.status.code() != Some(hardship.code) {
        wrong.push(format!(
            "expected the code {}, the job {}",
            hardship.code,
            done.end()
        ));
    }
    let printed = |text: &str| done.stdout.contains(text) || done.stderr.contains(text);
    let missing = hardship.texts.iter().filter(|text| !printed(text));
    wrong.extend(missing.map(|text| format!("`{text}` was not printed")));
    wrong.extend(left);
    wrong
}

const LIMIT: Duration = Duration::from_secs(240);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_code_missing_texts_and_leftovers_are_reported() {
        let mut shell = command("sh");
        shell.args(["-c", "echo all is well"]);
        let done = crate::process::capture(shell, LIMIT, |_| ()).unwrap();
        let full = HARDSHIPS
            .iter()
            .find(|hardship| hardship.code == 1)
            .unwrap();
        assert_eq!(judge(full, &done, Some("left behind: x".into())).len(), 3);
        assert_eq!(judge(&HARDSHIPS[0], &done, None), [""; 0]);
    }
}
