//! What the processes that this one started have computed, from Linux's `/proc`.

use std::collections::BTreeMap;
use std::fs;

/// CPU time of processes by their ids, in clock ticks of the kernel.
pub(crate) type CpuTimes = BTreeMap<u32, u64>;

/// CPU time of every process that this one or one of its descendants started and that has not been
/// waited for, with the children that it has waited for. Empty where there is no `/proc`.
pub(crate) fn cpu_times() -> CpuTimes {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A process that ended after the folder was listed has no status.
    let stats = ids.filter_map(|id: u32| {
        let (parent, ticks) = parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
        Some((id, parent, ticks))
    });
    below(std::process::id(), stats.collect())
}

/// The descendants of `root` among `(id, parent, ticks)`.
fn below(root: u32, mut others: Vec<(u32, u32, u64)>) -> CpuTimes {
    let mut found = CpuTimes::new();
    loop {
        let before = found.len();
        others.retain(|(id, parent, ticks)| {
            let is_below = *parent == root || found.contains_key(parent);
            if is_below {
                found.insert(*id, *ticks);
            }
            !is_below
        });
        if found.len() == before {
            return found;
        }
    }
}

/// Parent and CPU time in `/proc/<id>/stat`: utime, stime, cutime and cstime of `proc(5)`.
fn parse(stat: &str) -> Option<(u32, u64)> {
    // The second field is the name in parentheses, which may itself hold blanks and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>());
    Some((fields.get(1)?.parse().ok()?, ticks.sum::<Result<u64, _>>().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_status_is_read_behind_the_name() {
        let stat = "71 (a) b (c) S 70 71 71 0 -1 4194560 9 9 0 0 5 3 20 10 20 0 1 0 99 8 7";
        assert_eq!(parse(stat), Some((70, 38)));
        assert_eq!(parse("71 (sh) S 70"), None);
    }

    #[test]
    fn descendants_are_found_in_any_order() {
        let all = vec![(9, 7, 4), (7, 5, 2), (3, 1, 1), (5, 2, 8)];
        assert_eq!(below(5, all.clone()), CpuTimes::from([(7, 2), (9, 4)]));
        assert_eq!(below(9, all), CpuTimes::new());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_time_of_a_grandchild_grows_while_it_computes() {
        let script = "sh -c 'echo begun; while :; do :; done' & read end; kill $!";
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let begun = std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut [0; 6]);
        begun.unwrap();
        let before = cpu_times();
        assert!(before.len() >= 2 && before.contains_key(&child.id()), "{before:?}");
        // It ends as soon as the system gave the loop a tick, however long that takes.
        while cpu_times() == before {
            std::thread::yield_now();
        }
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
