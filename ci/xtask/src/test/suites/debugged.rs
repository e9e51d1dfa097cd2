// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `rmpi-queues` on a job of another MPI, with that MPI's debugger library: the distribution's Open MPI and its
//! `libompi_dbg_msgq.so`.
//!
//! That library needs the debug information of Open MPI's types, but the distribution strips it and has no package for
//! it. A package has the internal headers of the same build, and from these a compiler generates the same debug
//! information (`ci/suites/openmpi/types.c`).

use super::Tally;
use crate::process::{capture, quiet, send_signal};
use crate::softroce::packages;
use crate::tree::{command, root, target};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SECONDS: Duration = Duration::from_secs(60);

/// The pending operations of each rank, as the library reports them. The library shows no unexpected messages, and
/// reports `MPI_ANY_SOURCE` without its sign.
const EXPECTED: &[&str] = &[
    "no verdict: the library of this MPI does not say which calls wait\n",
    "\nMPI_COMM_WORLD\n  rank 0 (pid ",
    "\nhalo\n  rank 0 (pid ",
    "\n  rank 1 (pid ",
    "from any rank, any tag, 40 bytes (Receive: ",
    "from rank 0, tag 8, 40 bytes (Receive: ",
    "from rank 1, tag 7, 24 bytes (Receive: ",
];

pub(super) fn run(tally: &mut Tally, prefix: &Path) -> Result<(), String> {
    let folder = target().join("suites/debugged");
    let packages = packages("debugged", &folder, &OPEN_MPI, &HEADERS)?;
    let mpi = OpenMpi { root: packages };
    let types = mpi.types(&folder)?;
    let program = mpi.program(&folder)?;
    let job = mpi.start(&program)?;
    let pid = job.0.id().to_string();
    tally.check("the pending operations of a job of Open MPI", || {
        let output = queues(
            prefix,
            &["--debug-info", &types.display().to_string(), &pid],
        )?;
        let lacking = EXPECTED.iter().find(|text| !output.contains(**text));
        match lacking {
            None => Ok(()),
            Some(text) => Err(format!("`{text}` is missing in:\n{output}")),
        }
    });
    tally.check(
        "a library that does not find its types reports that",
        || match queues(prefix, &[&pid]) {
            Err(why) if why.contains("mqs_image_has_queues failed: ") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    Ok(())
}

/// Open MPI's packages. All of them are unpacked even if they are installed, because the unpacked launcher looks for
/// the files of the other packages relative to its own path.
const OPEN_MPI: [&str; 3] = ["openmpi-bin", "openmpi-common", "libopenmpi3"];

/// The packages with the headers of Open MPI's build, and with the headers that they include.
const HEADERS: [&str; 3] = ["libopenmpi-dev", "libevent-dev", "libhwloc-dev"];

/// Runs `rmpi-queues` and returns its output. An error unless its exit code is [`NO_VERDICT`].
fn queues(prefix: &Path, args: &[&str]) -> Result<String, String> {
    let mut queues = command(prefix.join("bin/rmpi-queues"));
    queues.args(args);
    let done = capture(queues, SECONDS, |_| ())?;
    match done.status.code() {
        Some(NO_VERDICT) => Ok(done.stdout),
        _ => Err(format!("{}\n{}{}", done.end(), done.stdout, done.stderr)),
    }
}

const NO_VERDICT: i32 = 4;

/// The distribution's packages, unpacked below `root`.
struct OpenMpi {
    root: PathBuf,
}

impl OpenMpi {
    fn libraries(&self) -> PathBuf {
        self.root.join("usr/lib/x86_64-linux-gnu")
    }

    fn headers(&self) -> PathBuf {
        self.libraries().join("openmpi/include")
    }

    /// Compiles a library with the debug information of Open MPI's types.
    fn types(&self, folder: &Path) -> Result<PathBuf, String> {
        let types = folder.join("types.so");
        let mut compile = command("cc");
        compile.args(["-g", "-shared", "-fPIC", "-w"]);
        // One header is included but not needed, and no package contains it; this macro skips the include.
        compile.arg("-D_PERUSE_INTERNAL_H_");
        compile.arg("-I").arg(self.headers().join("openmpi"));
        compile.arg("-I").arg(self.headers());
        compile.arg("-I").arg(self.root.join("usr/include"));
        let multiarch = self.root.join("usr/include/x86_64-linux-gnu");
        compile.arg("-I").arg(multiarch);
        compile.arg("-o").arg(&types);
        compile.arg(root().join("ci/suites/openmpi/types.c"));
        quiet(compile, SECONDS).map(|_| types)
    }

    fn program(&self, folder: &Path) -> Result<PathBuf, String> {
        let program = folder.join("pending");
        let (plain, own) = (self.libraries(), self.libraries().join("openmpi/lib"));
        let mut compile = command("cc");
        compile
            .arg("-I")
            .arg(self.headers())
            .arg("-o")
            .arg(&program);
        compile.arg(root().join("ci/suites/openmpi/pending.c"));
        compile
            .arg("-L")
            .arg(&own)
            .arg("-L")
            .arg(&plain)
            .arg("-lmpi");
        let behind = format!("-Wl,-rpath-link,{}:{}", plain.display(), own.display());
        quiet(
            {
                compile.arg(behind);
                compile
            },
            SECONDS,
        )
        .map(|_| program)
    }

    /// Starts a job of two ranks, and returns when all operations of both are pending.
    fn start(&self, program: &Path) -> Result<DebuggedJob, String> {
        let mut launch = command(self.root.join("usr/bin/mpirun.openmpi"));
        launch.args(["-n", "2", "--oversubscribe"]).arg(program);
        self.surround(&mut launch);
        launch.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = launch.stderr(Stdio::null()).spawn();
        let mut job = DebuggedJob(child.map_err(|why| format!("{launch:?}: {why}"))?);
        let output = job.0.stdout.take().ok_or("no output")?;
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let pending = lines.filter(|line| line == "pending").take(2).count();
        match pending {
            2 => Ok(job),
            _ => Err(format!(
                "Open MPI's program did not start its operations: {launch:?}"
            )),
        }
    }

    /// Sets the environment in which Open MPI works although its packages are not installed in `/` and its launcher
    /// runs as root.
    fn surround(&self, launch: &mut Command) {
        let (usr, libraries) = (self.root.join("usr"), self.libraries());
        let own = libraries.join("openmpi/lib");
        let search = [libraries.display(), own.display()].map(|it| it.to_string());
        launch.env("LD_LIBRARY_PATH", search.join(":"));
        let folders = [
            ("OPAL_PREFIX", usr.clone()),
            ("OPAL_BINDIR", usr.join("bin")),
            ("OPAL_DATADIR", usr.join("share")),
            ("OPAL_PKGDATADIR", usr.join("share/openmpi")),
            ("OPAL_LIBDIR", own.clone()),
            ("OPAL_PKGLIBDIR", own.join("openmpi3")),
            ("OPAL_SYSCONFDIR", self.root.join("etc")),
        ];
        launch.envs(folders);
        launch.envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            // The debugger library reads the queues of this layer.
            ("OMPI_MCA_pml", "ob1"),
            ("OMPI_MCA_btl", "self,vader"),
        ]);
    }
}

/// A job that is ended when this value is dropped.
struct DebuggedJob(Child);

impl Drop for DebuggedJob {
    fn drop(&mut self) {
        send_signal("TERM", &self.0.id().to_string());
        // The launcher ends its ranks first.
        let _ = self.0.wait();
    }
}
