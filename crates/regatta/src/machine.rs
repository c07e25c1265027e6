//! What the machine is like: how many merged trees fit onto it at once.

use std::fs;
use std::path::Path;

/// Checks build and test: each tree that is validated gets two cores and two gibibytes.
const CORES: u64 = 2;
const MEMORY_MB: u64 = 2048;
/// More at once are of little use: the queue lands what is green in any case.
const MOST: u64 = 8;

/// How many trees may be validated at once where a project does not say. It does not depend on what the machine does just
/// now, so a restart changes nothing (J11).
pub(crate) fn slots() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |it| it.get() as u64);
    fitting(cores, memory_mb(Path::new("/proc/meminfo"), Path::new("/sys/fs/cgroup/memory.max")))
}

/// Two at least where there is more than one core: while one is validated, the next is merged and set up.
fn fitting(cores: u64, memory_mb: Option<u64>) -> u32 {
    let by_cores = if cores < 2 { 1 } else { (cores / CORES).max(2) };
    let by_memory = memory_mb.map_or(MOST, |it| (it / MEMORY_MB).max(1));
    by_cores.min(by_memory).min(MOST) as u32
}

/// All the memory there is, or all that our control group may take, if that is less.
fn memory_mb(meminfo: &Path, group: &Path) -> Option<u64> {
    let total = fs::read_to_string(meminfo).ok().and_then(|it| {
        let line = it.lines().find_map(|it| it.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?.trim().to_owned();
        line.parse::<u64>().ok()
    });
    let most = fs::read_to_string(group).ok().and_then(|it| it.trim().parse::<u64>().ok());
    [total.map(|it| it >> 10), most.map(|it| it >> 20)].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fit_the_cores_and_the_memory() {
        for (cores, memory, slots) in [
            (1, Some(64_000), 1),
            (2, Some(64_000), 2),
            (4, Some(64_000), 2),
            (8, Some(64_000), 4),
            (64, Some(500_000), 8),
            (64, Some(3_000), 1),
            (16, Some(6_144), 3),
            (16, None, 8),
            (2, Some(500), 1),
        ] {
            assert_eq!(fitting(cores, memory), slots, "{cores} cores, {memory:?} MiB");
        }
    }

    #[test]
    fn the_smaller_of_machine_and_group_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (meminfo, group) = (dir.path().join("meminfo"), dir.path().join("max"));
        assert_eq!(memory_mb(&meminfo, &group), None);
        fs::write(&meminfo, "MemTotal:       16384000 kB\nMemFree: 1 kB\n").unwrap();
        fs::write(&group, "max\n").unwrap();
        assert_eq!(memory_mb(&meminfo, &group), Some(16_000));
        fs::write(&group, "1048576000\n").unwrap();
        assert_eq!(memory_mb(&meminfo, &group), Some(1_000));
    }
}
