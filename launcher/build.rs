// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells the linker to keep the names that debuggers look for, also in a copy of `rmpiexec` that was stripped.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=MPIR_*");
}
