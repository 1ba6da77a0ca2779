//! Which commit `build.rs` finds, in a package, in a git tree and outside of both.

use super::*;

const PROFILES: [&str; 2] = ["release", "debug"];

/// The build script, compiled.
fn script(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let script = folder.join("script");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let args = ["--edition", "2024", path(&source), "-o", path(&script)];
    assert!(Command::new(rustc).args(args).status().expect("rustc runs").success());
    script
}

/// The commit that the script finds for a build in a folder.
fn commit(script: &Path, folder: &Path, profile: &str, given: Option<&str>) -> Option<String> {
    let mut command = Command::new(script);
    command.current_dir(folder).env("PROFILE", profile).env_remove("BUILD_COMMIT");
    // No tree around the folder of temporary files.
    command.env("GIT_CEILING_DIRECTORIES", folder.parent().expect("a folder"));
    let output = command.envs(given.map(|commit| ("BUILD_COMMIT", commit))).output();
    let output = output.expect("the script runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let found = text.lines().find_map(|line| line.strip_prefix("cargo::rustc-env=MUSE_COMMIT="));
    found.map(str::to_owned)
}

fn git(folder: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(folder).args(["-c", "user.name=n", "-c", "user.email=e", "-c"]);
    let output = git.arg("commit.gpgsign=false").args(args).output().expect("git runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

#[test]
fn a_commit_is_found_where_there_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (script, tree) = (script(folder.path()), folder.path().join("tree"));
    std::fs::create_dir(&tree).expect("a folder");
    std::fs::write(tree.join("build.rs"), "fn main() {}").expect("written");
    for profile in PROFILES {
        assert_eq!(commit(&script, &tree, profile, None), None, "outside of git");
        assert_eq!(commit(&script, &tree, profile, Some("")), None);
        assert_eq!(commit(&script, &tree, profile, Some("abc")).as_deref(), Some("abc"));
    }
    git(&tree, &["init", "--quiet"]);
    assert_eq!(commit(&script, &tree, "release", None), None, "a tree that is not its own");
    git(&tree, &["add", "build.rs"]);
    git(&tree, &["commit", "--quiet", "-m", "first"]);
    let head = git(&tree, &["rev-parse", "HEAD"]);
    assert_eq!(commit(&script, &tree, "release", None).as_ref(), Some(&head));
    assert_eq!(commit(&script, &tree, "debug", None), None);
    std::fs::write(tree.join("build.rs"), "fn main() { }").expect("written");
    let changed = format!("{head} with changes");
    assert_eq!(commit(&script, &tree, "release", None), Some(changed));
}

#[test]
fn a_package_knows_its_commit() {
    let folder = tempfile::tempdir().expect("a folder");
    let (script, package) = (script(folder.path()), folder.path().join("package"));
    std::fs::create_dir(&package).expect("a folder");
    let commit_of = |text: &str| {
        std::fs::write(package.join(".cargo_vcs_info.json"), text).expect("written");
        commit(&script, &package, "release", None)
    };
    let sha = "0123456789abcdef0123456789abcdef01234567";
    let info = json!({ "git": { "sha1": sha }, "path_in_vcs": "crates/muse-serve" });
    assert_eq!(commit_of(&format!("{info:#}")).as_deref(), Some(sha));
    for broken in ["", "{}", r#"{"git":{"sha1":"x\ny"}}"#, r#"{"git":{"sha1":"#] {
        assert_eq!(commit_of(broken), None, "{broken}");
    }
}
