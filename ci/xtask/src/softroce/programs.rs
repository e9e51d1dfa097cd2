// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds programs that run in the guest.

use crate::process::{capture, command_line, quiet};
use crate::tree::{cargo, command, make_folder, root, target};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of the built programs.
pub(crate) fn folder() -> Result<PathBuf, String> {
    let folder = target().join("softroce");
    make_folder(&folder)?;
    Ok(folder)
}

/// Compiles a C program of the repository with the installed wrapper into the folder, under its own name. It is linked
/// with QMP if its name begins with `qmp_`.
pub(crate) fn compile(prefix: &Path, source: &str) -> Result<(), String> {
    let source = root().join(source);
    let name = source.file_stem().unwrap_or_default().to_string_lossy();
    let qmp = name.starts_with("qmp_").then_some("-lqmp");
    let mut compiler = command(prefix.join("bin/rmpicc"));
    compiler.args(["-O2", "-pthread", "-I"]);
    compiler.arg(root().join("ci/ranks")).arg("-o");
    compiler.arg(folder()?.join(&*name)).arg(&source);
    compiler.args(qmp).arg("-lm");
    quiet(compiler, Duration::from_secs(300)).map(drop)
}

/// Builds the conformance suites that every provider must pass: that of the transport, and that of the channels above
/// it.
pub(crate) fn conformance() -> Result<[PathBuf; 2], String> {
    let suite = |package| tests_of(package, &["--test", "conformance"]);
    Ok([suite("testbed")?, suite("channel")?])
}

/// Builds some tests of a crate (`--lib`, or `--test NAME`) and returns the program, to be run where there is a device.
pub(crate) fn tests_of(package: &str, which: &[&str]) -> Result<PathBuf, String> {
    let mut cargo = cargo();
    cargo.args(["test", "--quiet", "--package", package]);
    cargo.args(which);
    cargo.args(["--no-run", "--message-format", "json"]);
    let line = command_line(&cargo);
    let built = capture(cargo, Duration::from_secs(1800), |_| ())?;
    if !built.success() {
        return Err(format!("`{line}` {}\n{}", built.end(), built.stderr));
    }
    let path = executable(&built.stdout).ok_or_else(|| format!("`{line}` built no test"))?;
    Ok(root().join(path))
}

/// The last program that cargo reports as built.
fn executable(output: &str) -> Option<&str> {
    let (_, rest) = output.rsplit_once(r#""executable":""#)?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_that_cargo_has_built_is_found() {
        let output = concat!(
            r#"{"reason":"compiler-artifact","executable":null,"fresh":true}"#,
            "\n",
            r#"{"reason":"compiler-artifact","executable":"/a/deps/transport-1","fresh":true}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(executable(output), Some("/a/deps/transport-1"));
        assert_eq!(executable("{}"), None);
    }
}
