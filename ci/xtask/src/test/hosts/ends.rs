// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests, from outside a world of hosts, that nothing is left of the world however it ends.

use super::world;
use crate::process::{Finished, capture, send_signal};
use crate::test::jobs::Cookie;
use crate::tree::command;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// One check.
pub(super) struct End {
    pub(super) name: &'static str,
    pub(super) check: fn(&Path) -> Result<(), String>,
}

pub(super) const ALL: &[End] = &[
    End {
        name: "the_code_is_the_commands",
        check: the_code,
    },
    End {
        name: "what_the_command_left_running_ends",
        check: left_running,
    },
    End {
        name: "an_interrupt_is_for_the_command",
        check: interrupt,
    },
    End {
        name: "a_killed_world_leaves_nothing",
        check: killed,
    },
    End {
        name: "a_terminated_world_leaves_nothing",
        check: terminated,
    },
    End {
        name: "a_user_without_rights_has_hosts_or_a_reason",
        check: without_rights,
    },
];

fn the_code(build: &Path) -> Result<(), String> {
    let done = shell("exit 7", build, |_, _| ())?;
    code(&done, 7)
}

fn left_running(build: &Path) -> Result<(), String> {
    let line = "at n1 sleep 1000 & at n2 setsid sleep 1000 & $LAB_RSH n2 'sleep 1000' & sleep 0.5";
    let done = shell(line, build, |_, _| ())?;
    code(&done, 0)
}

fn interrupt(build: &Path) -> Result<(), String> {
    let line = "trap 'exit 9' INT; touch READY; while :; do sleep 0.05; done";
    let done = shell(line, build, |pid, ready| {
        when_ready(ready);
        send_signal("INT", &format!("-{pid}"));
    })?;
    code(&done, 9)
}

fn killed(build: &Path) -> Result<(), String> {
    ended_by(build, "KILL")
}

fn terminated(build: &Path) -> Result<(), String> {
    ended_by(build, "TERM")
}

/// Checks that everything ends after a signal to the first process only.
fn ended_by(build: &Path, signal: &str) -> Result<(), String> {
    let line = "at n1 sleep 1000 & at n2 setsid sleep 1000 & touch READY; sleep 1000";
    let done = shell(line, build, |pid, ready| {
        when_ready(ready);
        send_signal(signal, &pid.to_string());
    })?;
    match done.end() {
        end if end.contains("signal") => Ok(()),
        end => Err(format!("the world {end}\n{}{}", done.stdout, done.stderr)),
    }
}

/// Checks that a user other than root gets hosts in a user namespace, or a message why that is impossible.
fn without_rights(build: &Path) -> Result<(), String> {
    let world = world(2)?;
    let mut user = command("setpriv");
    let nobody = "--reuid 65534 --regid 65534 --clear-groups --";
    user.args(nobody.split(' ')).current_dir("/");
    let mut probe = command("setpriv");
    probe.args(nobody.split(' ')).args(["test", "-x"]);
    probe.arg(world.get_program());
    let is_root = probe.status().is_ok_and(|status| status.success());
    if !is_root {
        println!("        (the user nobody cannot run this program)");
        return Ok(());
    }
    user.arg(world.get_program()).args(world.get_args());
    user.args([
        "sh",
        "-c",
        "$LAB_RSH n2 hostname && at n1 id -u && lab left",
    ]);
    let done = watched(user, build, |_, _| ())?;
    let (out, err) = (&done.stdout, &done.stderr);
    let is_reported = err.contains("allows no namespaces") && err.len() < 400;
    match done.success() {
        true if out.starts_with("n2\n0\nnothing is left") => Ok(()),
        false if is_reported => Ok(()),
        _ => Err(format!("{}\n{out}{err}", done.end())),
    }
}

/// Runs a shell command in a world of two hosts. `meanwhile` receives the process id and the path of the file `READY`
/// of the command.
fn shell(
    line: &str,
    build: &Path,
    meanwhile: impl FnOnce(u32, &Path) + Send,
) -> Result<Finished, String> {
    let mut world = world(2)?;
    let ready = ready_file(build);
    world.args(["sh", "-c", &line.replace("READY", &ready.to_string_lossy())]);
    watched(world, build, meanwhile)
}

fn ready_file(build: &Path) -> std::path::PathBuf {
    build.join(format!("ready-{}", std::process::id()))
}

/// Runs a world to its end, and returns an error if something of it is left after that.
fn watched(
    mut world: Command,
    build: &Path,
    meanwhile: impl FnOnce(u32, &Path) + Send,
) -> Result<Finished, String> {
    let ready = ready_file(build);
    let _ = fs::remove_file(&ready);
    let wires = wires();
    let cookie = Cookie::new(build)?;
    cookie.mark(&mut world);
    let done = thread::scope(|scope| {
        let (cookie, ready) = (&cookie, &ready);
        scope.spawn(move || {
            if let Some(first) = first_of(cookie) {
                meanwhile(first, ready);
            }
        });
        capture(world, LIMIT, |_| ())
    })?;
    let _ = fs::remove_file(&ready);
    cookie.leftovers(Duration::from_secs(10))?;
    match self::wires() {
        after if after == wires => Ok(done),
        after => Err(format!(
            "the machine had the network devices {wires}, and now {after}"
        )),
    }
}

/// The process that was started: of the processes with this cookie, the one with the lowest id.
fn first_of(cookie: &Cookie) -> Option<u32> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(first) = cookie.processes().into_iter().min() {
            return Some(first);
        }
        thread::sleep(Duration::from_millis(5));
    }
    None
}

fn when_ready(ready: &Path) {
    let start = Instant::now();
    while !ready.exists() && start.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(5));
    }
}

/// The network devices and the named network namespaces of this machine.
fn wires() -> String {
    let mut names: Vec<String> = ["/sys/class/net", "/run/netns"]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names.join(" ")
}

fn code(done: &Finished, expected: i32) -> Result<(), String> {
    if done.status.code() == Some(expected) && !done.timed_out {
        return Ok(());
    }
    let end = done.end();
    let (out, err) = (&done.stdout, &done.stderr);
    Err(format!(
        "expected the code {expected}, it {end}\n{out}{err}"
    ))
}

const LIMIT: Duration = Duration::from_secs(40);
