// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installs other MPIs from the Python package index, each into a virtual environment of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Error;

/// Name of the peer and its packages.
const PACKAGES: [(&str, &[&str]); 3] = [
    ("mpich5", &["mpich>=5,<6"]),
    ("openmpi5", &["openmpi>=5,<6"]),
    ("intel", &["impi-rt", "impi-devel"]),
];

/// MPIs that Debian packages; compared too where they are installed.
const DEBIAN: [(&str, &str); 2] = [
    ("mpich4", "/usr/bin/mpicc.mpich"),
    ("openmpi4", "/usr/bin/mpicc.openmpi"),
];

/// Fetches all peers into `folder`, those that are there already excepted, and returns `NAME=PREFIX` for each.
///
/// # Errors
/// When Python is missing, or a package cannot be had.
pub fn fetch(folder: &Path, mut tell: impl FnMut(&str)) -> Result<Vec<String>, Error> {
    fs::create_dir_all(folder)
        .map_err(|e| Error::io(format!("cannot make {}", folder.display()), e))?;
    let folder = std::path::absolute(folder)
        .map_err(|e| Error::io(format!("cannot use {}", folder.display()), e))?;
    let mut peers = Vec::new();
    for (name, packages) in PACKAGES {
        let prefix = folder.join(name);
        if !prefix.join("bin/mpiexec").exists() {
            tell(&format!("{name}: {}", packages.join(" ")));
            run(Command::new("python3").args(["-m", "venv"]).arg(&prefix))?;
            let mut pip = Command::new(prefix.join("bin/pip"));
            run(pip
                .args(["install", "--quiet", "--disable-pip-version-check"])
                .args(packages))?;
        }
        peers.push(format!("{name}={}", prefix.display()));
    }
    let installed = DEBIAN
        .iter()
        .filter(|(_, wrapper)| Path::new(wrapper).exists());
    peers.extend(installed.map(|(name, _)| format!("{name}=/usr")));
    Ok(peers)
}

fn run(command: &mut Command) -> Result<(), Error> {
    let name = command.get_program().display().to_string();
    let output = command
        .output()
        .map_err(|e| Error::io(format!("cannot run {name}"), e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no message");
    let hint =
        "needs Python with venv (Debian: apt-get install python3-venv) and the package index";
    Err(Error::Program(format!("{name} failed: {last} ({hint})")))
}
