//! How much memory can be allocated: what the machine has available, or what the control groups of
//! this process leave, where that is less. Known on Linux.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux mounts control groups.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Bytes of memory that can be allocated without swapping; `None` where it is not known.
pub(crate) fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(mem_available);
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(left_in_cgroups(Path::new(CGROUP_ROOT), &own)).min()
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Files of a control group of one version.
struct Version {
    /// Files of limits, in bytes; without a limit they hold a word or a number larger than any
    /// memory.
    limits: &'static [&'static str],
    usage: &'static str,
    /// Entries of `memory.stat` with the bytes of cached files, which are given back on demand.
    cached: [&'static str; 2],
}

const V1: Version = Version {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    cached: ["total_active_file", "total_inactive_file"],
};

const V2: Version = Version {
    // Above `memory.high` a process is slowed down until it is of no use.
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    cached: ["active_file", "inactive_file"],
};

/// Bytes that the control groups of a process leave, the least of its own and of those around it;
/// `None` without a limit. `own` is its `/proc/self/cgroup`.
fn left_in_cgroups(root: &Path, own: &str) -> Option<u64> {
    let groups = own.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        match controllers {
            "" => Some((V2, root.to_owned(), path)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((V1, root.join("memory"), path))
            }
            _ => None,
        }
    });
    groups.filter_map(|(version, mount, path)| version.left(&mount, path)).min()
}

impl Version {
    /// Bytes left in the group at `path` below `mount` and in those that hold it. In a container,
    /// where the path may be that of the host, the group at `mount` is its own.
    fn left(&self, mount: &Path, path: &str) -> Option<u64> {
        let mut folder: PathBuf = mount.join(path.trim_start_matches('/'));
        let mut least = None;
        while folder.starts_with(mount) {
            least = least.into_iter().chain(self.left_in(&folder)).min();
            folder.pop();
        }
        least
    }

    fn left_in(&self, folder: &Path) -> Option<u64> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let limit = self.limits.iter().filter_map(|name| number(name)).min()?;
        let stat = read("memory.stat").unwrap_or_default();
        let entry = |name: &str| {
            let mut entries = stat.lines().filter_map(|line| line.split_once(' '));
            entries.find(|(key, _)| *key == name)?.1.trim().parse::<u64>().ok()
        };
        let cached: u64 = self.cached.iter().filter_map(|name| entry(name)).sum();
        let used = number(self.usage)?.saturating_sub(cached);
        Some(limit.saturating_sub(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with the files of control groups.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("written");
        }
        root
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], own: &str, expected: Option<u64>) {
        assert_eq!(left_in_cgroups(root(files).path(), own), expected, "{files:?} {own}");
    }

    #[test]
    fn the_least_of_all_groups_of_version_2_counts() {
        let files = [
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "700\n"),
            ("a/memory.stat", "anon 600\nactive_file 40\ninactive_file 60\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.high", "max\n"),
            ("a/b/memory.current", "1\n"),
            ("a/b/c/memory.max", "900\n"),
            ("a/b/c/memory.high", "800\n"),
            ("a/b/c/memory.current", "100\n"),
        ];
        check(&files, "0::/a\n", Some(400));
        check(&files, "0::/a/b\n", Some(400));
        check(&files, "1:cpu:/\n0::/a/b/c\n", Some(400));
        check(&files[6..], "0::/a/b/c\n", Some(700));
        check(&files, "0::/\n", None);
        // In a container, the path of the host is not there.
        let own = [("memory.max", "500\n"), ("memory.current", "600\n")];
        check(&own, "0::/docker/f00\n", Some(0));
        check(&own[..1], "0::/\n", None);
    }

    #[test]
    fn limits_of_version_1_count() {
        let files = [
            ("memory/job/memory.limit_in_bytes", "1000\n"),
            ("memory/job/memory.usage_in_bytes", "900\n"),
            ("memory/job/memory.stat", "cache 1\ntotal_active_file 300\ntotal_inactive_file 50\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.usage_in_bytes", "5000\n"),
        ];
        check(&files, "4:cpu,memory:/job\n0::/\n", Some(450));
        check(&files, "4:memory:/job/of/the/host\n", Some(450));
        check(&files[3..], "4:memory:/\n", Some(9_223_372_036_854_771_712 - 5000));
        check(&files, "4:cpuset:/job\n", None);
    }

    #[test]
    fn what_cannot_be_read_limits_nothing() {
        check(&[], "0::/a\n4:memory:/b\n", None);
        check(&[("memory.max", "many\n"), ("memory.current", "1\n")], "0::/\n", None);
        check(&[], "", None);
        check(&[("memory.max", "5\n"), ("memory.current", "1\n")], "nonsense", None);
        assert_eq!(mem_available("MemTotal: 9 kB\nMemAvailable:    3 kB\n"), Some(3072));
        assert_eq!(mem_available("MemTotal: 9 kB\n"), None);
    }
}
