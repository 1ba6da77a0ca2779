//! What the machine itself must have, and how to get it on Debian.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Something the machine lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    what: &'static str,
    package: &'static str,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is absent: apt-get install {}", self.what, self.package)
    }
}

/// Everything that is absent.
pub fn missing() -> Vec<Need> {
    let need = |has: bool, what, package| (!has).then_some(Need { what, package });
    let has = |header: &str| compiles(&format!("#if !__has_include(<{header}>)\n#error\n#endif"));
    [
        need(cfg!(all(target_os = "linux", target_arch = "x86_64")), "Linux on x86-64", "nothing"),
        need(compiles("#include <span>\nstd::span<int> a;"), "a C++20 compiler `c++`", "g++"),
        need(runs("python3", &["-m", "pip", "--version"]), "pip for python3", "python3-pip"),
        need(runs("python3", &["-c", "import ensurepip"]), "venv for python3", "python3-venv"),
        need(has("fmt/format.h"), "fmt/format.h", "libfmt-dev"),
        need(has("nlohmann/json.hpp"), "nlohmann/json.hpp", "nlohmann-json3-dev"),
        need(has_libclang(), "libclang", "libclang-dev"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// All of it in one message, with one command.
pub(super) fn advice(absent: &[Need]) -> String {
    let what: Vec<_> = absent.iter().map(|need| need.what).collect();
    let packages: Vec<_> = absent.iter().map(|need| need.package).collect();
    format!("absent: {}; get them with\n  apt-get install {}", what.join(", "), packages.join(" "))
}

fn runs(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn compiles(code: &str) -> bool {
    let mut command = Command::new("c++");
    command.args(["-std=c++20", "-fsyntax-only", "-x", "c++", "-"]).stdin(Stdio::piped());
    let Ok(mut child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return false;
    };
    let wrote = child.stdin.take().is_some_and(|mut pipe| pipe.write_all(code.as_bytes()).is_ok());
    child.wait().is_ok_and(|status| wrote && status.success())
}

/// Whether bindgen will find one: by `LIBCLANG_PATH` or where distributions put it.
fn has_libclang() -> bool {
    let named = std::env::var_os("LIBCLANG_PATH").is_some_and(|path| holds_libclang(path.as_ref()));
    let llvm = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let llvm = llvm.filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm"));
    named
        || ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/lib"]
            .iter()
            .any(|folder| holds_libclang(folder.as_ref()))
        || llvm.into_iter().any(|entry| holds_libclang(&entry.path().join("lib")))
}

fn holds_libclang(path: &Path) -> bool {
    let is = |name: &str| name.starts_with("libclang.so") || name.starts_with("libclang-");
    let name = path.file_name().is_some_and(|name| is(&name.to_string_lossy()));
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    name && path.is_file()
        || entries.into_iter().any(|entry| {
            let name = entry.file_name();
            is(&name.to_string_lossy()) && name.to_string_lossy().contains(".so")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_comes_with_one_command() {
        let absent = [
            Need { what: "fmt/format.h", package: "libfmt-dev" },
            Need { what: "libclang", package: "libclang-dev" },
        ];
        assert!(advice(&absent).ends_with("apt-get install libfmt-dev libclang-dev"));
    }

    #[test]
    fn code_that_cannot_compile_does_not() {
        assert!(!compiles("#include <no/such/header.hpp>"));
    }
}
