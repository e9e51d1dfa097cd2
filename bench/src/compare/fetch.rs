// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installs other MPIs from the Python package index, each into its own virtual environment.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Error;

/// The name of each peer and its packages.
const PACKAGES: [(&str, &[&str]); 3] = [
    ("mpich5", &["mpich>=5,<6"]),
    ("openmpi5", &["openmpi>=5,<6"]),
    ("intel", &["impi-rt", "impi-devel"]),
];

/// MPIs from Debian packages, with their compiler wrappers; they take part if they are installed.
const DEBIAN: [(&str, &str); 2] = [
    ("mpich4", "/usr/bin/mpicc.mpich"),
    ("openmpi4", "/usr/bin/mpicc.openmpi"),
];

/// Installs the peers that `folder` does not have yet, and returns `NAME=PREFIX` for each peer, and for each installed
/// MPI of Debian. `on_step` is called before each installation.
///
/// # Errors
/// When Python is missing, or a package cannot be installed.
pub fn fetch(folder: &Path, mut on_step: impl FnMut(&str)) -> Result<Vec<String>, Error> {
    fs::create_dir_all(folder)
        .map_err(|e| Error::io(format!("cannot make {}", folder.display()), e))?;
    let folder = std::path::absolute(folder)
        .map_err(|e| Error::io(format!("cannot use {}", folder.display()), e))?;
    let mut peers = Vec::new();
    for (name, packages) in PACKAGES {
        let prefix = folder.join(name);
        if !prefix.join("bin/mpiexec").exists() {
            on_step(&format!("{name}: {}", packages.join(" ")));
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
    let messages = String::from_utf8_lossy(&output.stderr);
    let last = messages
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no message");
    let hint =
        "needs Python with venv (Debian: apt-get install python3-venv) and the package index";
    Err(Error::Program(format!("{name} failed: {last} ({hint})")))
}
