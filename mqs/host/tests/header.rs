// SPDX-License-Identifier: MIT OR Apache-2.0
//! MQS-002..065: the installed header, as compilers see it, compared with the Rust types of the library.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../runtime/abi/tests/common/mod.rs"]
mod common;

use std::mem::{offset_of, size_of};
use std::process::Command;

use common::{prefix, scratch, source, succeed};
use mqs::interface::{
    BasicCallbacks, Communicator, ImageCallbacks, PendingOperation, ProcessCallbacks,
};

const PROGRAM: &str = include_str!("interface.c");

fn compiler(name: &str) -> Command {
    let mut compile = Command::new(name);
    compile.args(["-Wall", "-Wextra", "-Werror", "-I"]);
    compile.arg(prefix().join("include"));
    compile
}

/// The layout of one structure, as the compiled program prints it.
macro_rules! lines {
    ($type:ty, $c:literal: $($before:literal $member:ident $after:literal)+) => {{
        let mut lines = vec![format!("{} {}", $c, size_of::<$type>())];
        $(lines.push(format!(
            concat!($c, ".", $before, "{}", $after, " {}"),
            stringify!($member),
            offset_of!($type, $member),
        ));)+
        lines
    }};
}

/// The layouts of the library's Rust types.
fn ours() -> Vec<String> {
    let communicator = lines!(Communicator, "mqs_communicator":
        "" unique_id "" "" local_rank "" "" size "" "" name "");
    let operation = lines!(PendingOperation, "mqs_pending_operation":
        "" status "" "" desired_local_rank "" "" desired_global_rank "" "" tag_wild ""
        "" desired_tag "" "" desired_length "" "" system_buffer "" "" buffer ""
        "" actual_local_rank "" "" actual_global_rank "" "" actual_tag "" "" actual_length ""
        "" extra_text "");
    let basic = lines!(BasicCallbacks, "mqs_basic_callbacks":
        "mqs_" malloc "_fp" "mqs_" free "_fp" "mqs_" dprints "_fp" "mqs_" errorstring "_fp"
        "mqs_" put_image_info "_fp" "mqs_" get_image_info "_fp"
        "mqs_" put_process_info "_fp" "mqs_" get_process_info "_fp");
    let image = lines!(ImageCallbacks, "mqs_image_callbacks":
        "mqs_" get_type_sizes "_fp" "mqs_" find_function "_fp" "mqs_" find_symbol "_fp"
        "mqs_" find_type "_fp" "mqs_" field_offset "_fp" "mqs_" sizeof "_fp");
    let process = lines!(ProcessCallbacks, "mqs_process_callbacks":
        "mqs_" get_global_rank "_fp" "mqs_" get_image "_fp" "mqs_" fetch_data "_fp"
        "mqs_" target_to_host "_fp");
    [communicator, operation, basic, image, process].concat()
}

/// Sizes and offsets that the interface defines, listed independently of header and library. These are the ones for
/// which documents on the interface differ from practice.
const FIXED: [&str; 12] = [
    "mqs_communicator 88",
    "mqs_communicator.name 24",
    "mqs_pending_operation 416",
    "mqs_pending_operation.desired_tag 32",
    "mqs_pending_operation.buffer 56",
    "mqs_pending_operation.extra_text 96",
    "mqs_basic_callbacks 64",
    "mqs_basic_callbacks.mqs_dprints_fp 16",
    "mqs_basic_callbacks.mqs_get_process_info_fp 56",
    "mqs_image_callbacks 48",
    "mqs_image_callbacks.mqs_field_offset_fp 32",
    "mqs_process_callbacks 32",
];

#[test]
fn mqs_002_030_values_and_layouts_are_those_of_the_interface_in_c_and_cpp() {
    let folder = scratch("mqs-header");
    for (name, file) in [("cc", "interface.c"), ("c++", "interface.cc")] {
        let program = folder.join("interface");
        let mut compile = compiler(name);
        succeed(
            compile
                .arg("-o")
                .arg(&program)
                .arg(source(&folder, file, PROGRAM)),
        );
        let printed = succeed(&mut Command::new(&program));
        let theirs: Vec<_> = printed.lines().collect();
        assert_eq!(theirs, ours(), "MQS-031..065, {name}");
        assert!(FIXED.iter().all(|line| theirs.contains(line)), "{theirs:?}");
    }
}

#[test]
fn mqs_009_013_opaque_types_are_incomplete_and_distinct() {
    let folder = scratch("mqs-opaque");
    let compiles = |line: &str| {
        let text = format!("#include <mpi_interface.h>\nint main(void) {{ {line} return 0; }}\n");
        let mut compile = compiler("cc");
        let file = source(&folder, "opaque.c", &text);
        let compile = compile.arg("-fsyntax-only").arg(file);
        compile.output().unwrap().status.success()
    };
    let opaque = [
        "mqs_image",
        "mqs_process",
        "mqs_type",
        "mqs_image_info",
        "mqs_process_info",
    ];
    for (number, name) in opaque.iter().enumerate() {
        assert!(compiles(&format!("{name} *it = 0; (void)it;")), "{name}");
        assert!(!compiles(&format!("(void)sizeof({name});")), "{name}");
        let other = opaque[(number + 1) % opaque.len()];
        let mixed = format!("{name} *it = 0; {other} *other = it; (void)other;");
        assert!(!compiles(&mixed), "{name} is taken for {other}");
    }
}

#[test]
fn mqs_030_mqs_true_and_mqs_false_are_not_declared() {
    let header = std::fs::read_to_string(prefix().join("include/mpi_interface.h")).unwrap();
    let explained = "mqs_true is mqs_ok and their mqs_false is mqs_end_of_list";
    assert!(header.contains(explained));
    let folder = scratch("mqs-true");
    for name in ["mqs_true", "mqs_false"] {
        let text = format!("#include <mpi_interface.h>\nint main(void) {{ return {name}; }}\n");
        let mut compile = compiler("cc");
        let compile = compile.arg("-fsyntax-only");
        let output = compile
            .arg(source(&folder, "true.c", &text))
            .output()
            .unwrap();
        assert!(!output.status.success(), "{name}");
    }
}
