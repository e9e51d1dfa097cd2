// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Python of a suite's own, with packages whose hashes are known.

use crate::process::quiet;
use crate::tree::command;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A virtual environment in a suite's folder.
pub(super) struct Python {
    home: PathBuf,
}

impl Python {
    /// The one that [`make`](Self::make) made there.
    pub(super) fn of(home: &Path) -> Self {
        Self {
            home: home.to_path_buf(),
        }
    }

    pub(super) fn make(home: &Path) -> Result<Self, String> {
        let mut venv = command("python3");
        venv.args(["-m", "venv"]).arg(home.join("venv"));
        quiet(venv, Duration::from_secs(300))?;
        Ok(Self::of(home))
    }

    pub(super) fn program(&self) -> PathBuf {
        self.home.join("venv/bin/python")
    }

    /// pip, which keeps nothing outside the suite's folder.
    pub(super) fn pip(&self, word: &str) -> Command {
        let mut pip = command(self.program());
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-cache-dir", word]);
        pip.env("TMPDIR", self.home.join("tmp"));
        without_foreign_paths(&mut pip);
        pip
    }

    /// Installs the built packages that `requirements` names with their hashes.
    pub(super) fn install(&self, requirements: &Path) -> Result<(), String> {
        let mut pip = self.pip("install");
        pip.args(["--only-binary=:all:", "--no-deps", "--require-hashes", "-r"]);
        pip.arg(requirements);
        quiet(pip, Duration::from_secs(600)).map(|_| ())
    }
}

/// The user's Python modules have no part in this.
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
