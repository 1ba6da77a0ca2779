//! What this binary is: version, commit, features, and the instruction set that it computes with.

use std::sync::LazyLock;

/// The text of `muse --version`, without the name.
pub(super) fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(describe);
    &TEXT
}

fn describe() -> String {
    let commit = option_env!("MUSE_COMMIT").unwrap_or(match cfg!(debug_assertions) {
        true => "not recorded in debug builds",
        false => "unknown, built outside of git",
    });
    let features: Vec<&str> = [
        ("cpu", cfg!(feature = "cpu")),
        ("jemalloc", cfg!(feature = "jemalloc")),
        ("nano", cfg!(feature = "nano")),
    ]
    .into_iter()
    .filter_map(|(name, included)| included.then_some(name))
    .collect();
    format!(
        "{}\ncommit        {commit}\nfeatures      {}\ninstructions  {}, {}",
        env!("CARGO_PKG_VERSION"),
        if features.is_empty() { "none".to_owned() } else { features.join(", ") },
        std::env::consts::ARCH,
        instructions(),
    )
}

#[cfg(feature = "cpu")]
fn instructions() -> &'static str {
    muse_cpu::Isa::best().name()
}

#[cfg(not(feature = "cpu"))]
fn instructions() -> &'static str {
    "no CPU backend"
}
