//! Who may depend on whom, from `cargo metadata`.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Fault;

/// A dependency that a manifest declares.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    dev: bool,
}

/// Faults of the dependencies that `metadata` (JSON of `cargo metadata`) declares.
pub(super) fn check(metadata: &str) -> Result<Vec<Fault>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut faults = Vec::new();
    for package in packages {
        let from = package["name"].as_str().context("a package without a name")?;
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().context("a dependency without a name")?;
            let edge = Edge { from, to, dev: dependency["kind"] == "dev" };
            if let Some(reason) = refusal(&edge) {
                faults.push(format!("{from} must not depend on {to}: {reason}"));
            }
        }
    }
    Ok(faults)
}

/// Why a dependency is refused, if it is.
fn refusal(edge: &Edge<'_>) -> Option<&'static str> {
    match edge.to {
        "tokio" if !may_be_async(edge.from) => {
            Some("only muse-serve and the tests run an async runtime")
        }
        "tonic" if !may_be_async(edge.from) && edge.from != "muse-proto" => {
            Some("only muse-serve, the tests and muse-proto speak gRPC")
        }
        to if to.starts_with("muse-") => {
            sibling_refusal(edge).filter(|_| !(edge.dev && to == "muse-testkit"))
        }
        _ => None,
    }
}

fn may_be_async(package: &str) -> bool {
    matches!(package, "muse-serve" | "muse-tests")
}

fn sibling_refusal(edge: &Edge<'_>) -> Option<&'static str> {
    match (edge.from, edge.to) {
        ("muse-tests", _) => None,
        (
            "muse-parity",
            "muse-cpu" | "muse-dflash" | "muse-tt" | "muse-weights" | "muse-testkit",
        ) => None,
        (_, "muse-testkit") => Some("muse-testkit is for tests: make it a dev-dependency"),
        ("xtask", _) => Some("xtask builds in seconds because it needs no crate of muse"),
        ("muse-serve", _) | ("muse-tt", "muse-tt-sys") => None,
        ("muse-core" | "muse-proto" | "muse-tt-sys" | "muse-codegen", _) => {
            Some("it is the lowest layer")
        }
        (_, "muse-core") => None,
        (_, "muse-proto") => Some("only muse-serve and the tests know the messages of gRPC"),
        _ => Some("siblings know muse-core only; muse-serve joins them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(from: &str, to: &str, kind: Option<&str>) -> Vec<Fault> {
        let metadata = serde_json::json!({
            "packages": [{ "name": from, "dependencies": [{ "name": to, "kind": kind }] }]
        });
        check(&metadata.to_string()).unwrap()
    }

    #[track_caller]
    fn refuses(from: &str, to: &str, kind: Option<&str>) {
        let found = faults(from, to, kind);
        assert_eq!(found.len(), 1, "{from} -> {to}");
        assert!(found[0].contains(from) && found[0].contains(to), "{}", found[0]);
    }

    #[track_caller]
    fn allows(from: &str, to: &str, kind: Option<&str>) {
        assert_eq!(faults(from, to, kind), Vec::<Fault>::new(), "{from} -> {to}");
    }

    #[test]
    fn the_lowest_layer_depends_on_no_crate_of_muse() {
        refuses("muse-core", "muse-kv", None);
        refuses("muse-core", "muse-cpu", Some("build"));
        refuses("muse-proto", "muse-core", None);
        refuses("muse-tt-sys", "muse-core", None);
        refuses("muse-codegen", "muse-proto", None);
        allows("muse-core", "half", None);
    }

    #[test]
    fn siblings_know_the_core_only() {
        refuses("muse-dflash", "muse-kv", None);
        refuses("muse-cpu", "muse-weights", Some("dev"));
        refuses("muse-atem", "muse-serve", None);
        refuses("muse-tt", "muse-cpu", None);
        refuses("muse-parity", "muse-serve", None);
        allows("muse-parity", "muse-tt", None);
        allows("muse-parity", "muse-cpu", None);
        allows("muse-parity", "muse-dflash", None);
        allows("muse-parity", "muse-weights", None);
        allows("muse-dflash", "muse-core", None);
        allows("muse-tt", "muse-tt-sys", None);
    }

    #[test]
    fn only_the_server_runs_tokio_and_knows_the_messages() {
        refuses("muse-atem", "tokio", Some("dev"));
        refuses("muse-kv", "muse-proto", None);
        refuses("muse-proto", "tokio", None);
        refuses("muse-core", "tonic", None);
        allows("muse-proto", "tonic", None);
        allows("muse-serve", "tokio", None);
        allows("muse-serve", "muse-proto", None);
        allows("muse-tests", "muse-serve", None);
    }

    #[test]
    fn the_testkit_is_for_tests() {
        refuses("muse-serve", "muse-testkit", None);
        refuses("muse-testkit", "muse-cpu", None);
        allows("muse-testkit", "muse-core", None);
        allows("muse-kv", "muse-testkit", Some("dev"));
        allows("muse-tests", "muse-testkit", None);
    }

    #[test]
    fn xtask_needs_no_crate_of_muse() {
        refuses("xtask", "muse-core", None);
        refuses("xtask", "tokio", None);
        allows("xtask", "xshell", None);
    }
}
