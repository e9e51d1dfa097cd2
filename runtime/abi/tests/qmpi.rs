// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of stacked tools: C programs with C tools that are preloaded, loaded by path, or linked. The output of a run
//! shows the order of calls.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{function_names, prefix, run, scratch, source, succeed};

/// A tool in the mail's form. `NAME` is a macro.
const MAIL_TOOL: &str = r#"
#include <qmpi.h>
#include <stdio.h>
#include <stdlib.h>

struct instance { int id, calls; };

static int version(QMPI_Context context, int *major, int *minor)
{
    struct instance *mine;
    QMPI_Get_version_t *next;
    QMPI_Context below;
    int id;
    if (QMPIX_Context_get_tool_id(context, &id) || QMPI_Context_get_storage(context, id, (void **)&mine) || mine->id != id)
        return MPI_ERR_INTERN;
    printf("%s %d before %d\n", NAME, id, ++mine->calls);
    if (QMPI_Get_function(id, MPI_GET_VERSION_T, (void (**)(void))&next, &below))
        return MPI_ERR_INTERN;
    int code = next(below, major, minor);
    printf("%s %d after\n", NAME, id);
    return code;
}

static double clock_of_mine(QMPI_Context context)
{
    (void)context;
    return 42.0;
}

static void begin(int id)
{
    struct instance *mine = calloc(1, sizeof *mine);
    mine->id = id;
    if (QMPI_Register_tool_storage(id, mine)
        || QMPI_Register_tool_function(id, MPI_GET_VERSION_T, (void (*)(void))version)
        || QMPI_Register_tool_function(id, MPI_WTIME_T, (void (*)(void))clock_of_mine))
        abort();
}

__attribute__((constructor)) static void announce(void)
{
    if (QMPI_Register_tool_name(NAME, begin))
        abort();
}
"#;

/// [`MAIL_TOOL`] in MPICH's form, without its part for the clock.
const MPICH_TOOL: &str = r#"
#define QMPI_MPICH
#include <qmpi.h>
#include <stdio.h>
#include <stdlib.h>

static int version(QMPI_Context context, int id, int *major, int *minor)
{
    int *mine;
    QMPI_Get_version_t *next;
    int below;
    if (QMPI_Get_tool_storage(context, id, (void **)&mine))
        return MPI_ERR_INTERN;
    printf("%s %d before %d\n", NAME, id, ++*mine);
    if (QMPI_Get_function(id, MPI_GET_VERSION_T, (void (**)(void))&next, &below))
        return MPI_ERR_INTERN;
    int code = next(context, below, major, minor);
    printf("%s %d after\n", NAME, id);
    return code;
}

static void begin(int id)
{
    if (QMPI_Register_tool_storage(id, calloc(1, sizeof(int)))
        || QMPI_Register_function(id, MPI_GET_VERSION_T, (void (*)(void))version))
        abort();
}

__attribute__((constructor)) static void announce(void)
{
    if (QMPI_Register_tool_name(NAME, begin))
        abort();
}
"#;

const PRINT_VERSION: &str = r#"
#include <mpi.h>
#include <stdio.h>

int main(void)
{
    int major = 0, minor = 0;
    MPI_Get_version(&major, &minor);
    printf("%d.%d\n", major, minor);
    return 0;
}
"#;

fn compile(folder: &Path, name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let made = folder.join(name);
    let file = source(folder, &format!("{name}.c"), text);
    let mut command = Command::new(prefix().join("bin/rmpicc"));
    command.args(["-Wall", "-Werror", "-O1"]).arg(file);
    succeed(command.args(flags).arg("-o").arg(&made));
    made
}

fn tool(folder: &Path, name: &str, text: &str) -> PathBuf {
    let define = format!("-DNAME=\"{name}\"");
    compile(
        folder,
        &format!("lib{name}.so"),
        text,
        &["-shared", "-fPIC", &define],
    )
}

/// A program, and the two tools for it.
struct Bench {
    program: PathBuf,
    mail: PathBuf,
    mpich: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Self {
        let folder = scratch(name);
        Self {
            program: compile(&folder, "program", PRINT_VERSION, &[]),
            mail: tool(&folder, "mail", MAIL_TOOL),
            mpich: tool(&folder, "mpich", MPICH_TOOL),
        }
    }

    /// A run of the program with both tools preloaded and this list of tools in the environment variable.
    fn stacked(&self, variable: &str, list: &str) -> Command {
        let mut command = Command::new(&self.program);
        let both = format!("{}:{}", self.mail.display(), self.mpich.display());
        command.env("LD_PRELOAD", both).env(variable, list);
        command
    }
}

// QMPI-016.
#[test]
fn qmpi_001_016_a_registered_tool_that_is_not_listed_intercepts_nothing() {
    let bench = Bench::new("qmpi-announce");
    assert_eq!(
        succeed(bench.stacked("UNRELATED", "mail").env_remove("RMPI_TOOLS")),
        "5.0\n"
    );
    assert_eq!(succeed(&mut bench.stacked("RMPI_TOOLS", "")), "5.0\n");
}

// QMPI-005, QMPI-014, QMPI-015. The tools check QMPI-003, QMPI-004, QMPI-006, QMPI-007, QMPI-011 and QMPI-013: they
// abort, or return an error, if one of these fails.
#[test]
fn qmpi_002_005_014_015_the_tool_list_gives_order_and_instances_of_tools() {
    let bench = Bench::new("qmpi-order");
    assert_eq!(
        succeed(&mut bench.stacked("RMPI_TOOLS", "mail:mpich:mail")),
        "mail 1 before 1\nmpich 2 before 1\nmail 3 before 1\nmail 3 after\nmpich 2 after\nmail 1 after\n5.0\n"
    );
    assert_eq!(
        succeed(&mut bench.stacked("QMPI_TOOL_LIST", "mpich:mpich")),
        "mpich 1 before 1\nmpich 2 before 1\nmpich 2 after\nmpich 1 after\n5.0\n"
    );
    assert_eq!(
        succeed(&mut bench.stacked("MPIR_CVAR_QMPI_TOOL_LIST", "mpich")),
        "mpich 1 before 1\nmpich 1 after\n5.0\n"
    );
}

#[test]
fn a_tool_is_loaded_by_its_path_and_by_name_and_path() {
    let bench = Bench::new("qmpi-path");
    for list in [
        format!("{}", bench.mail.display()),
        format!("mail={}", bench.mail.display()),
    ] {
        let text = succeed(Command::new(&bench.program).env("RMPI_TOOLS", list));
        assert_eq!(text, "mail 1 before 1\nmail 1 after\n5.0\n");
    }
    let twice = format!("{0}:{0}:mail", bench.mail.display());
    let text = succeed(Command::new(&bench.program).env("RMPI_TOOLS", twice));
    assert_eq!(text.lines().count(), 7, "{text}");
}

#[test]
fn unknown_tools_are_reported_once_and_the_other_tools_run() {
    let folder = scratch("qmpi-unknown");
    let text = PRINT_VERSION.replace(
        "    MPI_Get_version",
        "    MPI_Init(0, 0);\n    MPI_Get_version",
    );
    let text = text.replace("    return 0", "    MPI_Finalize();\n    return 0");
    let program = compile(&folder, "program", &text, &[]);
    let mail = tool(&folder, "mail", MAIL_TOOL);
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", &mail)
        .env("RMPI_TOOLS", "male:mail:/no/such.so");
    let output = run(&mut command);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(
        stderr.contains("RMPI_TOOLS: no tool is called \"male\"; there is mail."),
        "{stderr}"
    );
    assert!(
        stderr.contains("cannot load the tool /no/such.so: "),
        "{stderr}"
    );
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed, "mail 1 before 1\nmail 1 after\n5.0\n");
}

#[test]
fn the_program_gets_the_value_that_a_tool_returns() {
    let folder = scratch("qmpi-value");
    let text = "#include <mpi.h>\n#include <stdio.h>\n\
                int main(void) { printf(\"%g %d\\n\", MPI_Wtime(), MPI_Wtick() < 1); return 0; }\n";
    let program = compile(&folder, "program", text, &[]);
    let mail = tool(&folder, "mail", MAIL_TOOL);
    let stacked = succeed(Command::new(program).env("RMPI_TOOLS", mail));
    assert_eq!(stacked, "42 1\n");
}

/// A tool that prints the function that contains the calling address, which it finds with `dladdr`.
const ADDRESS_TOOL: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <qmpi.h>
#include <stdio.h>
#include <stdlib.h>

static int version(QMPI_Context context, int *major, int *minor)
{
    QMPI_Get_version_t *next;
    QMPI_Context below;
    Dl_info from;
    void *address = 0;
    int id;
    QMPIX_Context_get_tool_id(context, &id);
    if (QMPI_Context_get_calling_address(context, id, &address) || !dladdr(address, &from))
        return MPI_ERR_INTERN;
    printf("%d from %s\n", id, from.dli_sname);
    QMPI_Get_function(id, MPI_GET_VERSION_T, (void (**)(void))&next, &below);
    return next(below, major, minor);
}

static void begin(int id)
{
    if (QMPI_Register_tool_function(id, MPI_GET_VERSION_T, (void (*)(void))version))
        abort();
}

__attribute__((constructor)) static void announce(void)
{
    QMPI_Register_tool_name(NAME, begin);
}
"#;

const PMPI_TOOL: &str = "#include <mpi.h>\n\
    int MPI_Get_version(int *version, int *subversion) {\n\
    int code = PMPI_Get_version(version, subversion); *subversion += 1; return code; }\n";

// QMPI-017.
#[test]
fn qmpi_012_017_the_calling_address_is_in_the_program_or_the_pmpi_tool_above() {
    let folder = scratch("qmpi-address");
    let text = PRINT_VERSION
        .replace(
            "int main(void)",
            "__attribute__((noinline)) void query_version(int *major, int *minor)",
        )
        .replace("    int major = 0, minor = 0;\n", "")
        .replace("(&major, &minor)", "(major, minor)")
        .replace(
            "major, minor);\n    return 0;\n}",
            "*major, *minor);\n}\n\
                 int main(void) { int a, b; query_version(&a, &b); return 0; }",
        );
    let program = compile(&folder, "program", &text, &["-rdynamic"]);
    let tool_path = tool(&folder, "where", ADDRESS_TOOL);
    let list = format!("{0}:{0}", tool_path.display());
    let text = succeed(Command::new(&program).env("RMPI_TOOLS", &list));
    assert_eq!(text, "1 from query_version\n2 from query_version\n5.0\n");
    let above = compile(&folder, "above.so", PMPI_TOOL, &["-shared", "-fPIC"]);
    let text = succeed(
        Command::new(&program)
            .env("RMPI_TOOLS", &list)
            .env("LD_PRELOAD", above),
    );
    assert_eq!(
        text,
        "1 from MPI_Get_version\n2 from MPI_Get_version\n5.1\n"
    );
}

#[test]
fn a_qmpi_tool_linked_into_the_program_works_with_both_libraries() {
    let folder = scratch("qmpi-linked");
    let define = "-DNAME=\"mail\"";
    let file = source(&folder, "tool.c", MAIL_TOOL);
    let file = file.to_str().unwrap();
    for flags in [vec![define, file], vec![define, file, "-static-mpi"]] {
        let program = compile(&folder, "program", PRINT_VERSION, &flags);
        let text = succeed(Command::new(&program).env("RMPI_TOOLS", "mail"));
        assert_eq!(text, "mail 1 before 1\nmail 1 after\n5.0\n", "{flags:?}");
    }
}

/// A tool that calls the interface with wrong arguments and prints unexpected results.
const WRONG: &str = r#"
#include <qmpi.h>
#include <stdio.h>
#include <string.h>

static void nothing(void) {}
static void other(int id) { (void)id; }
static int is(int found, int expected, int line)
{
    if (found != expected)
        printf("line %d: %d, expected %d\n", line, found, expected);
    return found;
}
#define IS(found, expected) is(found, expected, __LINE__)

static void begin(int id)
{
    int dummy;
    IS(QMPI_Register_tool_function(id, (enum QMPI_Functions_enum)-1, nothing), MPI_ERR_ARG);
    IS(QMPI_Register_tool_function(id, MPI_LAST_FUNC, nothing), MPI_ERR_ARG);
    IS(QMPI_Register_tool_function(id, MPI_SEND_T, NULL), MPI_ERR_ARG);
    IS(QMPI_Register_tool_function(id + 1, MPI_SEND_T, nothing), MPI_ERR_OTHER);
    IS(QMPI_Register_tool_storage(id + 1, &dummy), MPI_ERR_OTHER);
    IS(QMPI_Register_tool_function(id, MPI_SEND_T, nothing), MPI_SUCCESS);
    MPI_Get_version(&dummy, &dummy);
    IS(dummy, 0);
}

int main(void)
{
    char name[400];
    void (*function)(void);
    QMPI_Context context;
    void *storage;
    memset(name, 'n', sizeof name);
    name[399] = 0;
    IS(QMPI_Register_tool_name("wrong", begin), MPI_SUCCESS);
    IS(QMPI_Register_tool_name("wrong", other), MPI_ERR_OTHER);
    IS(QMPI_Register_tool_name("", other), MPI_ERR_ARG);
    IS(QMPI_Register_tool_name(NULL, other), MPI_ERR_ARG);
    IS(QMPI_Register_tool_name("x", NULL), MPI_ERR_ARG);
    IS(QMPI_Register_tool_name(name, other), MPI_ERR_ARG);
    IS(QMPI_Get_function(1, MPI_SEND_T, &function, &context), MPI_ERR_ARG);
    MPI_Wtime();
    IS(QMPI_Get_function(1, MPI_SEND_T, &function, &context), MPI_SUCCESS);
    IS(QMPI_Get_function(0, MPI_SEND_T, &function, &context), MPI_ERR_ARG);
    IS(QMPI_Get_function(2, MPI_SEND_T, &function, &context), MPI_ERR_ARG);
    IS(QMPI_Get_function(-5, MPI_SEND_T, &function, &context), MPI_ERR_ARG);
    IS(QMPI_Get_function(1, MPI_LAST_FUNC, &function, &context), MPI_ERR_ARG);
    IS(QMPI_Get_function(1, MPI_SEND_T, NULL, &context), MPI_ERR_ARG);
    IS(QMPI_Context_get_storage(context, 1, &storage), MPI_ERR_ARG);
    IS(QMPI_Context_get_calling_address(context, 0, &storage), MPI_ERR_OTHER);
    IS(QMPI_Register_tool_name("late", other), MPI_ERR_OTHER);
    IS(QMPI_Register_tool_function(1, MPI_SEND_T, nothing), MPI_ERR_OTHER);
    IS(QMPI_Register_tool_storage(1, &storage), MPI_ERR_OTHER);
    puts("done");
    return 0;
}
"#;

#[test]
fn invalid_qmpi_calls_return_their_error_class() {
    let folder = scratch("qmpi-wrong");
    let program = compile(&folder, "program", WRONG, &[]);
    let text = succeed(Command::new(program).env("RMPI_TOOLS", "wrong"));
    assert_eq!(text, "done\n");
}

// QMPI-009, QMPI-010.
#[test]
fn qmpi_008_009_010_every_function_has_a_number_and_a_type_in_both_forms_and_languages() {
    let folder = scratch("qmpi-header");
    let mut text = String::from("#include <mpi.h>\n");
    for name in function_names() {
        text += &format!(
            "extern Q{name}_t *f_{name}; int n_{name}[{}_T + 1];\n",
            name.to_uppercase()
        );
    }
    text += "int first[MPI_LAST_FUNC == 664 && MPI_WTIME_T == 663 ? 1 : -1];\n\
             QMPI_Context context;\n#ifdef QMPI_MPICH\n\
             QMPI_Send_t own; int own(QMPI_Context c, int id, const void *b, int n, MPI_Datatype t, int d, int g, MPI_Comm m) \
             { return QMPI_Send(c, 0 * id, b, n, t, d, g, m); }\n#else\n\
             QMPI_Send_t own; int own(QMPI_Context c, const void *b, int n, MPI_Datatype t, int d, int g, MPI_Comm m) \
             { (void) c; return PMPI_Send(b, n, t, d, g, m); }\n#endif\n";
    for (wrapper, name) in [("rmpicc", "all.c"), ("rmpicxx", "all.cc")] {
        let file = source(&folder, name, &text);
        for form in ["-DQMPI_API", "-DQMPI_MPICH"] {
            let mut command = Command::new(prefix().join("bin").join(wrapper));
            command.args(["-Wall", "-Werror", "-c", form]).arg(&file);
            succeed(command.arg("-o").arg(folder.join("all.o")));
        }
    }
}
