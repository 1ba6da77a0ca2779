//! The reference files and their manifest: every file listed, with its hash and where it is from.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use toml::{Table, Value};

const FOLDER: &str = "tests/golden";
const MANIFEST: &str = "tests/golden/MANIFEST.toml";
/// Facts that every set of files states.
const FACTS: [&str; 3] = ["producer", "command", "licence"];
/// Maximum bytes of a file that is not a checkpoint, and of all files.
const MAX_FILE_BYTES: u64 = 1_500_000;
const MAX_ALL_BYTES: u64 = 60_000_000;

/// Verifies the manifest, or prints the lines it lacks.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let listed = manifest(root)?;
    let mut faults = listing_faults(root)?;
    let mut lines = Vec::new();
    for file in files(root)? {
        let hash = hash(&root.join(FOLDER).join(&file))?;
        if listed.get(&file) != Some(&hash) {
            faults.push(format!("{FOLDER}/{file}: the manifest does not know its hash {hash}"));
            lines.push(format!("\"{file}\" = \"{hash}\""));
        }
    }
    if !check {
        lines.iter().for_each(|line| println!("{line}"));
        return Ok(());
    }
    faults.extend(size_faults(root)?);
    for fault in &faults {
        eprintln!("golden: {fault}");
    }
    ensure!(faults.is_empty(), "golden found {} faults", faults.len());
    println!("golden: {} files match the manifest", listed.len());
    Ok(())
}

/// Files that are not listed, and listed files that are not there.
pub(crate) fn listing_faults(root: &Path) -> Result<Vec<String>> {
    let (listed, files) = (manifest(root)?, files(root)?);
    let unlisted = files.iter().filter(|file| !listed.contains_key(*file)).map(|file| {
        format!("{FOLDER}/{file}: not in MANIFEST.toml; `cargo xtask golden` prints its line")
    });
    let missing = listed
        .keys()
        .filter(|file| !files.contains(*file))
        .map(|file| format!("{MANIFEST}: lists {file}, which is not there"));
    Ok(unlisted.chain(missing).collect())
}

/// Hash of every listed file, by path below the folder.
fn manifest(root: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(root.join(MANIFEST)).context(MANIFEST)?;
    let manifest: Table = text.parse().context(MANIFEST)?;
    let mut hashes = BTreeMap::new();
    for (name, set) in &manifest {
        for fact in FACTS {
            let stated = set.get(fact).and_then(Value::as_str).unwrap_or_default();
            ensure!(!stated.is_empty(), "{MANIFEST}: the set {name} must state its {fact}");
        }
        let files = set.get("files").and_then(Value::as_table);
        for (file, hash) in files.with_context(|| format!("{MANIFEST}: {name} lists no files"))? {
            let hash = hash.as_str().with_context(|| format!("{MANIFEST}: {file}: no hash"))?;
            if hashes.insert(file.clone(), hash.to_owned()).is_some() {
                bail!("{MANIFEST}: {file} is listed twice");
            }
        }
    }
    Ok(hashes)
}

/// Every reference file, by path below the folder. The scripts that made them are not data.
fn files(root: &Path) -> Result<Vec<String>> {
    let folder = root.join(FOLDER);
    let (mut files, mut folders) = (Vec::new(), vec![folder.clone()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let path = entry?.path();
            let below = path.strip_prefix(&folder).expect("found below the folder");
            let below = below.to_string_lossy().replace('\\', "/");
            match below.as_str() {
                "MANIFEST.toml" | "produce" => {}
                _ if path.is_dir() => folders.push(path),
                _ => files.push(below),
            }
        }
    }
    files.sort();
    Ok(files)
}

fn size_faults(root: &Path) -> Result<Vec<String>> {
    let (mut faults, mut all) = (Vec::new(), 0);
    for file in files(root)? {
        let bytes = fs::metadata(root.join(FOLDER).join(&file))?.len();
        let checkpoint = file.ends_with(".gguf") || file.ends_with("/model.safetensors");
        if bytes > MAX_FILE_BYTES && !checkpoint {
            faults.push(format!("{FOLDER}/{file}: {bytes} bytes, at most {MAX_FILE_BYTES}"));
        }
        all += bytes;
    }
    if all > MAX_ALL_BYTES {
        faults.push(format!("{FOLDER}: {all} bytes, at most {MAX_ALL_BYTES}"));
    }
    Ok(faults)
}

fn hash(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of `abc`, from FIPS 180-2.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    /// A tree with `tests/golden/a.json` of this content, under this manifest.
    fn tree(content: &str, manifest: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(FOLDER);
        fs::create_dir_all(folder.join("produce")).unwrap();
        fs::write(folder.join("produce/a.py"), "").unwrap();
        fs::write(folder.join("a.json"), content).unwrap();
        fs::write(folder.join("MANIFEST.toml"), manifest).unwrap();
        root
    }

    fn facts() -> String {
        "[a]\nproducer = \"hand\"\ncommand = \"none\"\nlicence = \"Apache-2.0\"\n".to_owned()
    }

    fn listing(hash: &str) -> String {
        format!("{}[a.files]\n\"a.json\" = \"{hash}\"\n", facts())
    }

    #[test]
    fn a_listed_file_passes() {
        run(tree("abc", &listing(ABC)).path(), true).unwrap();
    }

    #[test]
    fn a_changed_file_is_refused() {
        assert!(run(tree("abd", &listing(ABC)).path(), true).is_err());
    }

    #[test]
    fn an_unlisted_file_is_refused() {
        let root = tree("abc", &format!("{}[a.files]\n", facts()));
        assert!(run(root.path(), true).is_err());
        assert!(listing_faults(root.path()).unwrap()[0].contains("a.json"));
    }

    #[test]
    fn a_missing_file_is_refused() {
        let root = tree("abc", &listing(ABC));
        fs::remove_file(root.path().join(FOLDER).join("a.json")).unwrap();
        assert!(run(root.path(), true).is_err());
    }

    #[test]
    fn a_large_file_is_refused_unless_a_checkpoint() {
        let content = "x".repeat(MAX_FILE_BYTES as usize + 1);
        let root = tree(&content, &listing(ABC));
        assert_eq!(size_faults(root.path()).unwrap().len(), 1);
        let folder = root.path().join(FOLDER);
        fs::rename(folder.join("a.json"), folder.join("a.gguf")).unwrap();
        assert!(size_faults(root.path()).unwrap().is_empty());
    }

    #[test]
    fn a_set_states_where_it_is_from() {
        let unstated = listing(ABC).replace("producer = \"hand\"\n", "");
        let error = run(tree("abc", &unstated).path(), true).unwrap_err();
        assert!(error.to_string().contains("producer"), "{error}");
    }

    #[test]
    fn a_file_is_listed_once() {
        let again = listing(ABC).replace("[a", "[b");
        let error = run(tree("abc", &(listing(ABC) + &again)).path(), true).unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
    }
}
