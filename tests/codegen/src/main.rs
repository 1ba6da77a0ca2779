//! Generates the messages and stubs of `muse-proto` from `proto/`; with `--check` it only compares.
//! It depends on no muse crate, so that broken generated code cannot keep it from running.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use prost::Message;
use prost_types::FileDescriptorSet;

/// What is written, below `crates/muse-proto/src/generated`.
const STUBS: &str = "muse.v1.rs";
const DESCRIPTORS: &str = "muse.v1.binpb";

fn main() -> Result<()> {
    let check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        other => bail!("found arguments {other:?}; give none to generate, or --check to compare"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let out = root.join("crates/muse-proto/src/generated");
    let files = compile(&root.join("proto"))?;
    let made = [(STUBS, stubs(files.clone())?), (DESCRIPTORS, descriptors(files))];
    for (name, bytes) in made {
        let path = out.join(name);
        if check {
            let found = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let same = found == bytes;
            ensure!(same, "{} is not what proto/ gives; run cargo xtask codegen", path.display());
        } else {
            fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

/// Compiles all files of the package, sorted by name so that the result is always the same.
fn compile(proto: &Path) -> Result<FileDescriptorSet> {
    let folder = proto.join("muse/v1");
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files = entries.map(|e| Ok(e?.path())).collect::<Result<Vec<PathBuf>>>()?;
    files.retain(|file| file.extension().is_some_and(|e| e == "proto"));
    files.sort();
    protox::compile(&files, [proto]).map_err(|e| anyhow::anyhow!("{e:?}"))
}

fn stubs(files: FileDescriptorSet) -> Result<Vec<u8>> {
    let scratch = std::env::temp_dir().join(format!("muse-codegen-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    tonic_prost_build::configure()
        .codec_path("crate::Codec")
        .out_dir(&scratch)
        .compile_fds(files)?;
    let code = fs::read(scratch.join(STUBS));
    fs::remove_dir_all(&scratch)?;
    Ok(code?)
}

/// For reflection, which has no use for comments and places in files.
fn descriptors(mut files: FileDescriptorSet) -> Vec<u8> {
    for file in &mut files.file {
        file.source_code_info = None;
    }
    files.encode_to_vec()
}
