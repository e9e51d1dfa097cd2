// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inside the world's namespaces: its folders, its network, its hosts, and the command.
//!
//! What hosts share is below [`LAB`]: `bin` (in PATH), `etc` (bound over the machine's files), `keep` (folders to bind
//! back), `own` (what each host has for itself), `pid` (the pid of each host's first process in the world's namespace)
//! and `base` (what is in a fresh host).

use super::ssh::Shell;
use super::{HostsRequest, code_of, left, this_program};
use crate::process::{quiet, seconds};
use crate::tree::{command, make_folder, root, target};
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Makes the world, runs the command in it, and returns its exit code. There is nothing to clean up: everything ends
/// with the world.
pub(super) fn run(request: &HostsRequest) -> Result<i32, String> {
    let start = Instant::now();
    let folder =
        env::current_dir().map_err(|why| format!("the working folder does not exist: {why}"))?;
    let shell = Shell::find();
    for needed in [&root(), &target(), &folder] {
        if needed.starts_with("/run") {
            let needed = needed.display();
            return Err(format!(
                "{needed} is below /run, which each host has of its own"
            ));
        }
    }
    lay_out(request.count)?;
    keep(request, &folder)?;
    shell.prepare(lab())?;
    quiet(script(&shell, 0), LIMIT)?;
    ip(&BRIDGE.lines().map(String::from).collect::<Vec<_>>())?;
    // This fails on a kernel without IPv6; hosts then have only IPv4.
    let _ = ip(&["addr add fd77::254/64 dev br0 nodad".into()]);
    let hosts = hosts(request.count, &shell)?;
    let mut command = command_in_world(request, &shell);
    // The working directory is set again by its path: a mount may have hidden the old folder, and the path then leads
    // to the new one.
    command.current_dir(&folder);
    eprintln!(
        "hosts: n1 to n{}, {}, made in {}",
        request.count,
        shell.description(),
        seconds(start.elapsed())
    );
    let status = command.status();
    drop(hosts);
    status
        .map(code_of)
        .map_err(|why| format!("cannot start the command: {why}"))
}

/// The folder for everything that the hosts share.
pub(super) fn lab() -> &'static Path {
    Path::new(LAB)
}

/// Writes a text file; an error names its path.
pub(super) fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))
}

fn lay_out(count: usize) -> Result<(), String> {
    mount(&["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
    for folder in ["bin", "etc/ssh", "keep", "own", "pid", "base"] {
        make_folder(&lab().join(folder))?;
    }
    write(&lab().join("etc/hosts"), &names(count))?;
    write(&lab().join("etc/nsswitch.conf"), NAME_SERVICES)?;
    let bin = lab().join("bin");
    let program = bin.join("xtask");
    write(&program, "")?;
    // A bind mount keeps the current file even if cargo replaces this program meanwhile.
    mount(&["--bind", &text(&this_program()?), &text(&program)])?;
    let lab_line = format!("#!/bin/sh\nexec {} hosts --lab \"$@\"\n", program.display());
    for (name, script) in [
        ("at", AT),
        ("host", HOST),
        ("lab-rsh", LAB_RSH),
        ("lab", &lab_line),
    ] {
        let file = bin.join(name);
        write(&file, script)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
            .map_err(|why| format!("cannot protect {}: {why}", file.display()))?;
    }
    Ok(())
}

/// `/etc/hosts` of all hosts: `n1` has an address of each family, `n1-4` only IPv4 and `n1-6` only IPv6.
fn names(count: usize) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
    for (number, address) in [(0, 254)].into_iter().chain((1..=count).map(|i| (i, i))) {
        for (family, prefix) in [(4, "10.77.0."), (6, "fd77::")] {
            text += &format!("{prefix}{address} n{number}.lab n{number} n{number}-{family}\n");
        }
    }
    text
}

/// Each host's own folders will hide some folders that the hosts share. Binds the shared folders below `keep`; from
/// there, `ci/hosts/host` binds them back to their paths.
fn keep(request: &HostsRequest, working: &Path) -> Result<(), String> {
    let requested = request.keep.iter().cloned();
    let all = [root(), target(), working.to_path_buf()].into_iter();
    let mut all: Vec<PathBuf> = all
        .chain(requested)
        .filter_map(|folder| fs::canonicalize(folder).ok())
        .filter(|folder| OWN.iter().any(|own| folder.starts_with(own)))
        .collect();
    all.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for folder in all {
        if OWN.iter().any(|own| folder == Path::new(own)) {
            eprintln!(
                "hosts: each host has a {} of its own, empty at first",
                folder.display()
            );
        } else if !kept.iter().any(|outer| folder.starts_with(outer)) {
            kept.push(folder);
        }
    }
    for (number, folder) in kept.iter().enumerate() {
        let aside = lab().join(format!("keep/{number}"));
        make_folder(&aside.join("tree"))?;
        write(&aside.join("path"), &text(folder))?;
        mount(&["--rbind", &text(folder), &text(&aside.join("tree"))])?;
    }
    Ok(())
}

/// A host that is being made.
struct Host {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// Starts all hosts, then connects them to the bridge.
fn hosts(count: usize, shell: &Shell) -> Result<Vec<Host>, String> {
    let mut hosts = (1..=count)
        .map(|number| start(number, shell))
        .collect::<Result<Vec<_>, _>>()?;
    let mut wires = Vec::new();
    for (number, host) in (1..).zip(&mut hosts) {
        let pid = host.line(number)?;
        write(&lab().join(format!("pid/n{number}")), &format!("{pid}\n"))?;
        wires.push(format!(
            "link add v{number} type veth peer name eth0 netns {pid}"
        ));
        wires.push(format!("link set v{number} master br0 up"));
    }
    ip(&wires)?;
    for host in &mut hosts {
        // Writing fails if the host has failed; `host.line` below then reports the reason.
        if let Some(mut input) = host.process.stdin.take() {
            let _ = input.write_all(b"go\n");
        }
    }
    for (number, host) in (1..).zip(&mut hosts) {
        host.line(number)?;
        left::remember(&format!("n{number}"))?;
    }
    left::remember("n0")?;
    Ok(hosts)
}

fn start(number: usize, shell: &Shell) -> Result<Host, String> {
    let log = log_of(number);
    let file = fs::File::create(&log);
    let file = file.map_err(|why| format!("cannot write {}: {why}", log.display()))?;
    let inside = script(shell, number);
    let mut unshare = command("unshare");
    unshare
        .args("--net --uts --ipc --mount --pid --fork --kill-child=KILL".split(' '))
        .arg("--")
        .arg(inside.get_program())
        .args(inside.get_args());
    for (name, value) in inside.get_envs() {
        value.map(|value| unshare.env(name, value));
    }
    unshare
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(file);
    let mut process = unshare
        .spawn()
        .map_err(|why| format!("cannot start unshare (util-linux): {why}"))?;
    let output = process.stdout.take().ok_or("a host has no output")?;
    Ok(Host {
        process,
        output: BufReader::new(output),
    })
}

impl Host {
    fn line(&mut self, number: usize) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(1..) => Ok(line.trim().into()),
            _ => {
                let messages = fs::read_to_string(log_of(number)).unwrap_or_default();
                Err(format!("host n{number} did not start: {messages}"))
            }
        }
    }
}

fn log_of(number: usize) -> PathBuf {
    lab().join(format!("own/{number}.log"))
}

/// The command that runs `ci/hosts/host` for one host.
fn script(shell: &Shell, number: usize) -> Command {
    let mut script = command("sh");
    script.arg(lab().join("bin/host")).arg(number.to_string());
    script.env("PATH", path());
    if let Shell::Ssh(sshd, user) = shell {
        let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
        script
            .env("LAB_SSHD", sshd)
            .env("LAB_PATH", path())
            .env("LAB_UID", uid)
            .env("LAB_GID", gid)
            .env("LAB_HOME", &user.home);
    }
    script
}

/// The requested command, or a shell if there is none, with its environment.
fn command_in_world(request: &HostsRequest, shell: &Shell) -> Command {
    let mut inside = command("env");
    // Ctrl-C must reach the command. Without these options, the command would ignore interrupts, because its ancestors
    // ignore them.
    inside.args(["--default-signal=INT", "--default-signal=QUIT", "--"]);
    if request.command.is_empty() {
        let bash = crate::tree::find_program("bash").is_some();
        inside.args(if bash {
            ["bash", "--norc"].iter()
        } else {
            ["sh", "-i"].iter()
        });
        inside.env("PS1", "n0:$PWD# ");
    }
    let names: Vec<String> = (1..=request.count).map(|i| format!("n{i}")).collect();
    inside
        .args(&request.command)
        .env("PATH", path())
        .env("LAB_HOSTS", names.join(" "))
        .env("LAB_RSH", shell.launcher(lab()));
    inside
}

/// The value of PATH in the world: first the world's tools, last the folders `sbin`, which a user's PATH may lack.
fn path() -> String {
    let given = env::var("PATH").unwrap_or_default();
    format!("{LAB}/bin:{given}:/usr/local/sbin:/usr/sbin:/sbin")
}

/// Runs several commands of `ip` in one process.
pub(super) fn ip(lines: &[String]) -> Result<(), String> {
    let file = lab().join("ip-batch");
    write(&file, &(lines.join("\n") + "\n"))?;
    let mut ip = command("ip");
    ip.arg("-batch").arg(file).env("PATH", path());
    quiet(ip, LIMIT).map(|_| ())
}

fn mount(args: &[&str]) -> Result<(), String> {
    let mut mount = command("mount");
    mount.args(args).current_dir("/");
    quiet(mount, LIMIT).map(|_| ())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

const LAB: &str = "/run/lab";
/// Folders that each host has for itself.
const OWN: &[&str] = &["/tmp", "/dev/shm", "/run"];
const HOST: &str = include_str!("../../../hosts/host");
const AT: &str = include_str!("../../../hosts/at");
const LAB_RSH: &str = include_str!("../../../hosts/lab-rsh");
const NAME_SERVICES: &str = "\
hosts: files
passwd: files
group: files
shadow: files
services: files
";
const BRIDGE: &str = "\
link set lo up
link add br0 type bridge
addr add 10.77.0.254/24 dev br0
link set br0 up";
const LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_names_for_each_family() {
        let text = names(2);
        assert!(text.contains("10.77.0.2 n2.lab n2 n2-4\nfd77::2 n2.lab n2 n2-6\n"));
        assert!(text.contains("10.77.0.254 n0.lab n0 n0-4\n"));
        assert!(!text.contains("n3"));
    }
}
