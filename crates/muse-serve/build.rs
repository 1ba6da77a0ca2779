//! Finds the commit that is built, for `muse --version`: `BUILD_COMMIT` where it is set, else
//! that of the package, else that of the git tree. Builds without any of them have no commit.

use std::path::Path;
use std::process::Command;

/// What `cargo package` writes about the tree.
const PACKAGE_INFO: &str = ".cargo_vcs_info.json";
/// Names the commit, for builds from a copy of the tree without its history.
const VARIABLE: &str = "BUILD_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let given = std::env::var(VARIABLE).ok().filter(|commit| !commit.is_empty());
    if let Some(commit) = given.or_else(of_package).or_else(of_tree) {
        println!("cargo::rustc-env=MUSE_COMMIT={commit}");
    }
}

fn of_package() -> Option<String> {
    let text = std::fs::read_to_string(PACKAGE_INFO).ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    let commit = rest.split('"').nth(1)?;
    commit.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| commit.to_owned())
}

/// The commit of the tree, marked when files differ from it. Not for debug builds, which would be
/// built again after each commit.
fn of_tree() -> Option<String> {
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return None;
    }
    // A folder inside of another project's tree has no history of its own.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let commit = git(&["rev-parse", "HEAD"])?;
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        // One that is missing would count as changed each time.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // All crates: whether the tree has changes is part of the answer.
    println!("cargo::rerun-if-changed=..");
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
