//! Reads the machine's size and the release of its kernel, and computes from the size the number of
//! trials that are validated at the same time. A trial merges finished work onto the trunk and runs
//! the checks on the result.

use std::fs;
use std::path::Path;

/// The number of processor cores that each validation needs, because the checks build and test the
/// project.
const CORES_PER_SLOT: u64 = 2;
/// The memory that each validation needs, in MiB.
const MEMORY_PER_SLOT_MB: u64 = 2048;
/// The maximum number of validations at the same time. With more validations, work would hardly
/// land faster.
const MAX_SLOTS: u64 = 8;

/// Returns the number of merge results that Regatta validates (runs the checks on) at the same time
/// in a project whose settings contain no such number.
///
/// The number does not depend on the current load, so a restart of the daemon does not change it
/// (invariant J11).
pub(crate) fn validation_slots() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |non_zero| non_zero.get() as u64);
    slots_for(
        cores,
        available_memory_mb(
            Path::new("/proc/meminfo"),
            Path::new("/sys/fs/cgroup/memory.max"),
        ),
    )
}

/// Returns the release of the running kernel, such as `6.1.0-28-amd64`.
pub(crate) fn kernel_release() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/osrelease").ok()
}

/// Returns the number of validations (runs of the checks on a merge result) for which these cores
/// and this memory are enough. Two cores with enough memory already allow 2 validations, because
/// Regatta can merge and set up a second tree while the checks run on the first tree.
fn slots_for(cores: u64, memory_mb: Option<u64>) -> u32 {
    let by_cores = if cores < 2 {
        1
    } else {
        (cores / CORES_PER_SLOT).max(2)
    };
    let by_memory = memory_mb.map_or(MAX_SLOTS, |memory_mb| {
        (memory_mb / MEMORY_PER_SLOT_MB).max(1)
    });
    by_cores.min(by_memory).min(MAX_SLOTS) as u32
}

/// Returns the machine's memory in MiB, or the memory limit of this process's control group
/// (cgroup) if that is less. Returns `None` if both are unknown.
fn available_memory_mb(meminfo: &Path, group: &Path) -> Option<u64> {
    let total = fs::read_to_string(meminfo).ok().and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?
            .trim()
            .strip_suffix("kB")?
            .trim()
            .to_owned();
        line.parse::<u64>().ok()
    });
    let limit = fs::read_to_string(group)
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    [
        total.map(|total| total >> 10),
        limit.map(|limit| limit >> 20),
    ]
    .into_iter()
    .flatten()
    .min()
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
            assert_eq!(
                slots_for(cores, memory),
                slots,
                "{cores} cores, {memory:?} MiB"
            );
        }
    }

    #[test]
    fn the_smaller_memory_limit_applies() {
        let dir = tempfile::tempdir().unwrap();
        let (meminfo, group) = (dir.path().join("meminfo"), dir.path().join("max"));
        assert_eq!(available_memory_mb(&meminfo, &group), None);
        fs::write(&meminfo, "MemTotal:       16384000 kB\nMemFree: 1 kB\n").unwrap();
        fs::write(&group, "max\n").unwrap();
        assert_eq!(available_memory_mb(&meminfo, &group), Some(16_000));
        fs::write(&group, "1048576000\n").unwrap();
        assert_eq!(available_memory_mb(&meminfo, &group), Some(1_000));
    }
}
