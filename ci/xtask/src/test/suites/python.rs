// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Python environment of a suite, with packages of known hashes.

use crate::process::quiet;
use crate::tree::command;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A virtual environment in the folder of a suite.
pub(super) struct Python {
    folder: PathBuf,
}

impl Python {
    /// The environment that [`make`](Self::make) made there.
    pub(super) fn of(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
        }
    }

    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        let mut venv = command("python3");
        venv.args(["-m", "venv"]).arg(folder.join("venv"));
        quiet(venv, Duration::from_secs(300))?;
        Ok(Self::of(folder))
    }

    pub(super) fn program(&self) -> PathBuf {
        self.folder.join("venv/bin/python")
    }

    /// The command `pip ACTION`, which writes nothing outside the suite's folder.
    pub(super) fn pip(&self, action: &str) -> Command {
        let mut pip = command(self.program());
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-cache-dir", action]);
        pip.env("TMPDIR", self.folder.join("tmp"));
        without_foreign_paths(&mut pip);
        pip
    }

    /// Installs the binary packages that the file `requirements` lists with their hashes.
    pub(super) fn install(&self, requirements: &Path) -> Result<(), String> {
        let mut pip = self.pip("install");
        pip.args(["--only-binary=:all:", "--no-deps", "--require-hashes", "-r"]);
        pip.arg(requirements);
        quiet(pip, Duration::from_secs(600)).map(|_| ())
    }
}

/// Keeps Python from using the user's modules.
pub(super) fn without_foreign_paths(python: &mut Command) {
    python
        .env_remove("PYTHONPATH")
        .env_remove("PYTHONHOME")
        .env("PYTHONNOUSERSITE", "1");
}

#[cfg(test)]
mod tests {
    use super::super::listed::folder;
    use crate::tree::read;

    #[test]
    fn what_is_fetched_has_a_hash() {
        for file in ["mpi4py/source.txt", "mpi4py/tools.txt", "rsmpi/tools.txt"] {
            let text = read(&folder(file)).unwrap().replace("\\\n", "");
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                assert!(
                    line.contains("==") && line.contains("--hash=sha256:"),
                    "{line}"
                );
            }
        }
    }
}
