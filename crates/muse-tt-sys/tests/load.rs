//! Libraries that are not the shim are refused with what was found and what to do.

use std::path::{Path, PathBuf};
use std::process::Command;

use muse_tt_sys::Library;
use muse_tt_sys::ffi::{MTT_ABI, mtt_api};

/// Compiles a library from C.
fn library(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (from, to) = (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
    std::fs::write(&from, source).unwrap();
    let compile = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&to).arg(from).status();
    assert!(compile.expect("a C compiler").success());
    to
}

/// The error of opening a library.
fn refusal(path: &Path) -> String {
    // SAFETY: the libraries of these tests run no code when they are opened.
    match unsafe { Library::open(path) } {
        Ok(_) => panic!("{} is not a shim", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_missing_library_is_named() {
    let error = refusal(Path::new("/nowhere/libmuse_tt.so"));
    assert!(error.contains("/nowhere/libmuse_tt.so") && error.contains("tt-setup"), "{error}");
}

#[test]
fn a_library_without_the_entry_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = refusal(&library(folder.path(), "other", "int other(void) { return 1; }"));
    assert!(error.contains("muse_tt_api") && error.contains("tt-setup"), "{error}");
}

#[test]
fn a_shim_without_a_vtable_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = "void* muse_tt_api(void) { return 0; }";
    let error = refusal(&library(folder.path(), "empty", source));
    assert!(error.contains("no vtable") && error.contains("build with the feature"), "{error}");
}

#[test]
fn another_version_and_another_vtable_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = size_of::<mtt_api>();
    for (name, abi, bytes) in [("newer", MTT_ABI + 1, bytes), ("shorter", MTT_ABI, bytes - 8)] {
        let source = format!(
            "static unsigned table[2] = {{{abi}, {bytes}}}; void* muse_tt_api(void) {{ return table; }}"
        );
        let error = refusal(&library(folder.path(), name, &source));
        let found = format!("version {abi} and a vtable of {bytes} bytes");
        assert!(error.contains(&found) && error.contains("build with the feature"), "{error}");
    }
}
