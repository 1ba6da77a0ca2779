//! Tenstorrent's packages: which versions, what is where in them, and those that the machine has.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::Unavailable;

/// A package, its file and the hash of the file.
struct Wheel {
    name: &'static str,
    version: &'static str,
    file: &'static str,
    sha256: &'static str,
}

/// The host library, device headers and firmware.
const TTNN: Wheel = Wheel {
    name: "ttnn",
    version: "0.76.0",
    file: "ttnn-0.76.0-cp312-cp312-manylinux_2_34_x86_64.whl",
    sha256: "ef9ae928b233dbda6b732937e00d803552ad75dc0d8e892d5f2d75e87b2b77df",
};
/// The compiler for the device, and the host headers that go with that library.
const PLUGIN: Wheel = Wheel {
    name: "jax-tt-plugin",
    version: "0.1.0",
    file: "jax_tt_plugin-0.1.0-py3-none-manylinux_2_34_x86_64.whl",
    sha256: "2a5eaa1536ffb811a08513127828ad652fc042ea7a69f68b1ddad46d234b8c7f",
};
/// The requirements file of the simulator and its dependencies, with the hash of every file.
const WOLFPINE: &str = include_str!("wolfpine.txt");

/// The script that starts the simulator, in the site-packages of a Python.
pub(super) const SIMULATOR: &str = "framework/sim/blackhole/run.sh";

/// The magic number of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The magic number in the header of a tar archive.
const USTAR: std::ops::Range<usize> = 257..262;

/// Where a host library and its files are.
#[derive(Clone, Debug)]
pub(super) struct HostLibrary {
    /// The root folder of the library at run time.
    pub(super) root: PathBuf,
    pub(super) version: String,
    /// The folder `tt_metal` of a source tree.
    pub(super) headers: PathBuf,
    pub(super) libraries: Vec<PathBuf>,
    /// The description of a device for the mock lane.
    pub(super) mock: Option<PathBuf>,
}

/// Downloads and unpacks what is missing.
pub(super) fn install(folder: &Path) -> Result<HostLibrary> {
    let library = complete(&folder.join("ttnn"), |to| {
        let wheel = TTNN.download(folder)?;
        run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(to))
    })?;
    let tree = complete(&folder.join("metal"), |to| {
        println!(
            "tt-setup: {} {} declares no licence of its own (it holds Apache-2.0 headers and a \
             GPLv3 compiler); it is installed here and nothing of it is passed on",
            PLUGIN.name, PLUGIN.version
        );
        let wheel = PLUGIN.download(folder)?;
        let unzipped = complete(&folder.join("plugin"), |to| {
            run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(to))
        })?;
        unpack_tree(&unzipped.join("jax_plugins/libtt/libtt.so"), to)?;
        // A third of a gigabyte that is no longer needed.
        Ok(fs::remove_dir_all(unzipped)?)
    })?;
    let root = library.join("ttnn");
    let link = root.join("runtime/sfpi");
    if !link.exists() {
        // A dangling link counts as not existing.
        let _ = fs::remove_file(&link);
        fs::create_dir_all(root.join("runtime"))?;
        std::os::unix::fs::symlink(tree.join("runtime/sfpi"), &link)?;
    }
    let version = format!("{}-{}", TTNN.name, TTNN.version);
    let libraries = vec![root.join("build/lib"), library.join("ttnn.libs")];
    Ok(HostLibrary { root, version, libraries, mock: mock(&tree), headers: tree.join("tt_metal") })
}

/// The host library of Tenstorrent's own packages on this machine, if it is complete.
pub(super) fn installed() -> Option<HostLibrary> {
    installed_in(
        &PathBuf::from(std::env::var_os("TT_METAL_RUNTIME_ROOT")?),
        Path::new("/opt/tenstorrent/sfpi"),
    )
}

fn installed_in(root: &Path, sfpi: &Path) -> Option<HostLibrary> {
    let headers = root.join("tt_metal");
    let library = ["build/lib", "build_Release/lib", "lib"].map(|folder| root.join(folder));
    let library = library.into_iter().find(|folder| folder.join("libtt_metal.so").exists())?;
    let compiler = root.join("runtime/sfpi").exists() || sfpi.exists();
    let complete = compiler && headers.join("api/tt-metalium/host_api.hpp").exists();
    complete.then(|| HostLibrary {
        root: root.to_owned(),
        version: "local".to_owned(),
        libraries: vec![library],
        mock: mock(root),
        headers,
    })
}

fn mock(tree: &Path) -> Option<PathBuf> {
    let folder = tree.join("tt_metal/third_party/umd/tests/cluster_descriptor_examples");
    Some(folder.join("blackhole_P150.yaml")).filter(|file| file.exists())
}

/// Installs the simulator into a virtual environment and returns its Python.
pub(super) fn simulator(folder: &Path) -> Result<PathBuf> {
    let home = folder.join("python");
    let python = home.join("bin/python");
    if simulator_folder(&python).is_none() || !missing_of_simulator(&python).is_empty() {
        println!("tt-setup: installing a simulator and what it requires");
        let list = folder.join("wolfpine.txt");
        fs::write(&list, WOLFPINE).with_context(|| list.display().to_string())?;
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-deps", "--only-binary=:all:", "--retries", "2", "--timeout", "30"]);
        fetch(pip.args(["--require-hashes", "--requirement"]).arg(list))?;
    }
    Ok(python)
}

/// The folder of the simulator that the host library takes.
pub(super) fn simulator_folder(python: &Path) -> Option<PathBuf> {
    let folders = packages(python).into_iter();
    let run = folders.map(|packages| packages.join(SIMULATOR)).find(|run| run.exists())?;
    Some(run.parent()?.to_owned())
}

/// Packages of the simulator that are missing, or installed in another version.
pub(super) fn missing_of_simulator(python: &Path) -> Vec<&'static str> {
    let folders = packages(python);
    let is_installed = |pinned: &str| {
        let folder = format!("{}.dist-info/RECORD", pinned.replace("==", "-"));
        // pip writes this file last.
        folders.iter().any(|packages| packages.join(&folder).exists())
    };
    pinned().filter(|pinned| !is_installed(pinned)).collect()
}

/// The packages with their versions.
fn pinned() -> impl Iterator<Item = &'static str> {
    WOLFPINE.lines().filter_map(|line| line.split(' ').next()).filter(|word| word.contains("=="))
}

/// The site-packages folders of a Python.
fn packages(python: &Path) -> Vec<PathBuf> {
    let lib = python.parent().and_then(Path::parent).map(|home| home.join("lib"));
    let versions = lib.and_then(|lib| fs::read_dir(lib).ok()).into_iter().flatten().flatten();
    versions.map(|version| version.path().join("site-packages")).collect()
}

impl Wheel {
    /// The file. It is downloaded if it is missing or has a wrong hash.
    fn download(&self, folder: &Path) -> Result<PathBuf> {
        let downloads = folder.join("downloads");
        let file = downloads.join(self.file);
        if file.exists() && self.wrong_hash(&file)?.is_none() {
            return Ok(file);
        }
        println!("tt-setup: downloading {} {}", self.name, self.version);
        fs::create_dir_all(&downloads)?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-deps", "--only-binary=:all:", "--retries", "2", "--timeout", "30"]);
        pip.args(["--python-version", "3.12", "--platform", "manylinux_2_34_x86_64"]);
        pip.arg("--dest").arg(&downloads).arg(format!("{}=={}", self.name, self.version));
        fetch(&mut pip)?;
        match self.wrong_hash(&file)? {
            None => Ok(file),
            Some(found) => {
                fs::remove_file(&file)?;
                bail!(
                    "{} has the sha256 {found}, expected {}: the registry serves another file \
                     than the tested one; it was deleted",
                    self.file,
                    self.sha256
                )
            }
        }
    }

    /// The hash of the file if it is wrong.
    fn wrong_hash(&self, file: &Path) -> Result<Option<String>> {
        let mut hash = Sha256::new();
        io::copy(&mut File::open(file).with_context(|| self.file.to_owned())?, &mut hash)?;
        let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((found != self.sha256).then_some(found))
    }
}

/// Creates `folder` by filling another folder, which is renamed when it is complete.
fn complete(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    if !folder.exists() {
        let partial = folder.with_extension("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        fill(&partial).with_context(|| format!("making {}", folder.display()))?;
        fs::rename(&partial, folder)?;
    }
    Ok(folder.to_owned())
}

/// Runs a command that needs the package registry. Its failure means that the packages are
/// unavailable.
fn fetch(pip: &mut Command) -> Result<()> {
    run(pip).map_err(|error| match error.to_string().contains(OTHER_FILE) {
        true => error.context("the registry serves another file than the tested one"),
        false => Unavailable(format!("{error:#}")).into(),
    })
}

/// The message of pip about a file with a wrong hash.
const OTHER_FILE: &str = "DO NOT MATCH THE HASHES";

/// Runs a command to its end. The error has the line that the program marks as its error, or the
/// last.
fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines = || stderr.lines().rev().filter(|line| !line.trim().is_empty());
    let error = lines().find(|line| line.starts_with("ERROR: ")).or(lines().next());
    // Without a connection pip reports that it finds no such package.
    let registry = if stderr.contains("Retrying (") { " (no registry answers)" } else { "" };
    let error = error.unwrap_or("no output");
    ensure!(output.status.success(), "{command:?} failed: {error}{registry}");
    Ok(())
}

/// Unpacks the archive inside a library: the zstd frame that contains a tar archive.
fn unpack_tree(library: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(library).with_context(|| library.display().to_string())?;
    let starts = bytes.windows(ZSTD.len()).enumerate().filter(|(_, at)| **at == ZSTD);
    for (at, _) in starts {
        let Ok(mut frame) = ruzstd::decoding::StreamingDecoder::new(&bytes[at..]) else { continue };
        let mut header = [0; 512];
        if frame.read_exact(&mut header).is_err() || &header[USTAR] != b"ustar" {
            continue;
        }
        let mut tar = Command::new("tar");
        tar.arg("-x").arg("-C").arg(to).stdin(Stdio::piped());
        let mut child = tar.spawn().context("tar")?;
        let mut pipe = child.stdin.take().context("tar takes no archive")?;
        pipe.write_all(&header)?;
        io::copy(&mut frame, &mut pipe).context("the archive is damaged")?;
        drop(pipe);
        ensure!(child.wait()?.success(), "tar could not unpack the archive");
        return Ok(());
    }
    bail!(
        "{} holds no archive; the layout of another version of the package may differ",
        library.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_complete_or_absent() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("part");
        let stop = complete(&folder, |to| {
            fs::write(to.join("half"), "")?;
            bail!("interrupted")
        });
        assert!(stop.is_err() && !folder.exists());
        complete(&folder, |to| Ok(fs::write(to.join("full"), "")?)).unwrap();
        assert!(folder.join("full").exists() && !folder.join("half").exists());
        complete(&folder, |_| bail!("it is there already")).unwrap();
    }

    #[test]
    fn an_error_has_the_message_of_the_program() {
        let script =
            "echo 'WARNING: Retrying (Retry(total=1'>&2; echo 'ERROR: no room' >&2; exit 1";
        let error = run(Command::new("sh").args(["-c", script])).unwrap_err().to_string();
        assert!(error.ends_with("failed: ERROR: no room (no registry answers)"), "{error}");
        run(Command::new("sh").args(["-c", "echo much >&2"])).unwrap();
    }

    #[test]
    fn an_installed_host_library_is_found_when_complete() {
        let temporary = tempfile::tempdir().unwrap();
        let (root, sfpi) = (temporary.path().join("metal"), temporary.path().join("sfpi"));
        fs::create_dir_all(root.join("tt_metal/api/tt-metalium")).unwrap();
        fs::create_dir_all(root.join("lib")).unwrap();
        fs::write(root.join("tt_metal/api/tt-metalium/host_api.hpp"), "").unwrap();
        fs::write(root.join("lib/libtt_metal.so"), "").unwrap();
        assert!(installed_in(&root, &sfpi).is_none(), "no compiler yet");
        fs::create_dir(&sfpi).unwrap();
        let found = installed_in(&root, &sfpi).unwrap();
        assert_eq!(
            (found.version.as_str(), &found.libraries[..]),
            ("local", &[root.join("lib")][..])
        );
    }

    #[test]
    fn a_download_that_fails_is_unavailable_but_a_wrong_file_is_not() {
        let error = fetch(&mut Command::new("false")).context("pip").unwrap_err();
        assert!(error.is::<Unavailable>(), "{error:#}");
        let error = run(&mut Command::new("false")).unwrap_err();
        assert!(!error.is::<Unavailable>(), "{error:#}");
        let script = format!("echo 'ERROR: THESE {OTHER_FILE}' >&2; echo '  Got 12' >&2; exit 1");
        let error = fetch(Command::new("sh").args(["-c", &script])).unwrap_err();
        assert!(!error.is::<Unavailable>() && format!("{error:#}").contains("another file"));
    }

    #[test]
    fn every_package_of_the_simulator_has_a_version_and_hashes() {
        let lines = WOLFPINE.lines().filter(|line| !line.starts_with('#'));
        for line in lines.map(str::trim) {
            let (what, rest) = line.split_once("sha256:").unwrap_or((line, ""));
            let hash = rest.trim_end_matches(" \\");
            let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(line.contains("==") || what == "--hash=" && is_hash, "{line}");
        }
        let names: Vec<_> = pinned().map(|one| one.split("==").next().unwrap()).collect();
        // The dependencies that the simulator declares, and theirs.
        for needed in ["wolfpine", "numpy", "pyyaml", "pynng", "flatbuffers", "pyarrow"] {
            assert!(names.contains(&needed), "{needed}");
        }
        for needed in ["pyelftools", "cffi", "pycparser", "sniffio"] {
            assert!(names.contains(&needed), "{needed}");
        }
    }

    #[test]
    fn packages_of_another_version_are_missing() {
        let temporary = tempfile::tempdir().unwrap();
        let python = temporary.path().join("python/bin/python");
        assert_eq!(missing_of_simulator(&python).len(), pinned().count());
        let packages = temporary.path().join("python/lib/python3.12/site-packages");
        for (at, pinned) in pinned().enumerate() {
            let pinned = if at == 1 { pinned.replace("==", "==9") } else { pinned.to_owned() };
            let folder = packages.join(format!("{}.dist-info", pinned.replace("==", "-")));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("RECORD"), "").unwrap();
        }
        assert_eq!(missing_of_simulator(&python), [pinned().nth(1).unwrap()]);
    }

    #[test]
    fn a_library_without_an_archive_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let library = temporary.path().join("libtt.so");
        fs::write(&library, [&[1, 2, 3][..], &ZSTD, &[0; 64]].concat()).unwrap();
        let error = unpack_tree(&library, temporary.path()).unwrap_err();
        assert!(error.to_string().contains("no archive"), "{error}");
    }
}
