//! What must be installed on the machine, and how to install it on Debian.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Something that the machine lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prerequisite {
    what: &'static str,
    /// `None` when no package provides it.
    package: Option<&'static str>,
}

impl fmt::Display for Prerequisite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.package {
            Some(package) => write!(f, "{} is absent: apt-get install {package}", self.what),
            None => write!(f, "{} is absent: use a machine that has it", self.what),
        }
    }
}

/// All absent prerequisites.
pub fn missing() -> Vec<Prerequisite> {
    let check = |has: bool, what, package| (!has).then_some(Prerequisite { what, package });
    let has = |header: &str| compiles(&format!("#if !__has_include(<{header}>)\n#error\n#endif"));
    [
        check(cfg!(all(target_os = "linux", target_arch = "x86_64")), "Linux on x86-64", None),
        check(has_glibc(), "glibc 2.34 or later", None),
        check(
            compiles("#include <span>\nstd::span<int> a;"),
            "a C++20 compiler `c++`",
            Some("g++"),
        ),
        check(runs("python3", &["-c", PYTHON]), "Python 3.11 to 3.14 as python3", None),
        check(runs("python3", &["-m", "pip", "--version"]), "pip for python3", Some("python3-pip")),
        check(
            runs("python3", &["-c", "import ensurepip"]),
            "venv for python3",
            Some("python3-venv"),
        ),
        check(has("fmt/format.h"), "fmt/format.h", Some("libfmt-dev")),
        check(has("nlohmann/json.hpp"), "nlohmann/json.hpp", Some("nlohmann-json3-dev")),
        check(has_libclang(), "libclang", Some("libclang-dev")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Exits with 0 in a Python that the packages of the simulator are pinned for.
const PYTHON: &str = "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))";

/// One message for all of them, with one command.
pub(super) fn advice(absent: &[Prerequisite]) -> String {
    let what: Vec<_> = absent.iter().map(|absent| absent.what).collect();
    let packages: Vec<_> = absent.iter().filter_map(|absent| absent.package).collect();
    let mut advice = format!("absent: {}", what.join(", "));
    if absent.iter().any(|absent| absent.package.is_none()) {
        advice += "; not all of it can be installed: use another machine";
    } else {
        advice += &format!("; get them with\n  apt-get install {}", packages.join(" "));
    }
    advice
}

/// Whether the C library is as new as the packages require.
fn has_glibc() -> bool {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").stderr(Stdio::null()).output();
    output.is_ok_and(|output| glibc(&String::from_utf8_lossy(&output.stdout)) >= Some((2, 34)))
}

/// The version in the output of `getconf`.
fn glibc(output: &str) -> Option<(u32, u32)> {
    let (major, minor) = output.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
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

/// Whether bindgen will find libclang: in `LIBCLANG_PATH` or in a folder of a distribution.
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
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    path.is_file() && path.file_name().is_some_and(|name| is_libclang(&name.to_string_lossy()))
        || entries.into_iter().any(|entry| is_libclang(&entry.file_name().to_string_lossy()))
}

/// Whether it is the library with the C interface; the one for C++ has `-cpp` in its name.
fn is_libclang(name: &str) -> bool {
    let named = name.starts_with("libclang.so") || name.starts_with("libclang-");
    named && name.contains(".so") && !name.contains("-cpp.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_prerequisites_come_with_one_command() {
        let absent = [
            Prerequisite { what: "fmt/format.h", package: Some("libfmt-dev") },
            Prerequisite { what: "libclang", package: Some("libclang-dev") },
        ];
        assert!(advice(&absent).ends_with("apt-get install libfmt-dev libclang-dev"));
        let old = Prerequisite { what: "glibc 2.34 or later", package: None };
        let advice = advice(&[absent[0], old]);
        assert!(advice.contains("another machine") && !advice.contains("apt-get"), "{advice}");
    }

    #[test]
    fn only_the_library_with_the_c_interface_counts() {
        for name in ["libclang.so", "libclang.so.1", "libclang-14.so.1", "libclang-14.so.14.0.6"] {
            assert!(is_libclang(name), "{name}");
        }
        for name in ["libclang-cpp.so.14", "libclang-cpp.so", "libclang-14.a", "libclangAST.so"] {
            assert!(!is_libclang(name), "{name}");
        }
    }

    #[test]
    fn versions_of_glibc_are_compared_as_numbers() {
        assert_eq!(glibc("glibc 2.36\n"), Some((2, 36)));
        assert!(glibc("glibc 2.4") < Some((2, 34)) && glibc("") < Some((2, 34)));
    }

    #[test]
    fn code_that_cannot_compile_does_not() {
        assert!(!compiles("#include <no/such/header.hpp>"));
    }
}
