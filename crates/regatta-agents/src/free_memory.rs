//! Measures how much memory is free for starting more programs.

use std::fs;
use std::path::Path;

/// Returns the free memory in MiB: the memory that the kernel reports as available, or less if the
/// memory limit of this process's control group leaves less. Returns `None` if neither can be read.
pub(crate) fn free_mb() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| parse_available_mb(&text));
    let group = free_in_group_mb(Path::new("/sys/fs/cgroup"));
    [machine, group].into_iter().flatten().min()
}

fn parse_available_mb(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib >> 10)
}

/// Returns how many MiB are left below the memory limit of the control group at `root`. Inside a
/// container that is the container's own group.
fn free_in_group_mb(root: &Path) -> Option<u64> {
    let number = |name: &str| {
        fs::read_to_string(root.join(name))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let (limit, used) = (number("memory.max")?, number("memory.current")?);
    // Do not count cached file pages as used, because the kernel frees them before it refuses
    // memory.
    let stat = fs::read_to_string(root.join("memory.stat")).unwrap_or_default();
    let cached = stat
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file "))
        .and_then(|bytes| bytes.trim().parse::<u64>().ok())
        .unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cached)) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_parsed_from_meminfo() {
        assert_eq!(
            parse_available_mb("MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable:    4097024 kB\n"),
            Some(4001)
        );
        assert_eq!(parse_available_mb("MemTotal: 8000 kB\n"), None);
        assert_eq!(parse_available_mb("MemAvailable: many\n"), None);
    }

    #[test]
    fn limit_of_the_control_group_counts_if_there_is_one() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        assert_eq!(free_in_group_mb(root.path()), None);
        write("memory.current", "734003200\n");
        write("memory.max", "max\n");
        assert_eq!(free_in_group_mb(root.path()), None, "no limit");
        write("memory.max", "1048576000\n");
        assert_eq!(free_in_group_mb(root.path()), Some(300));
        write(
            "memory.stat",
            "anon 5\ninactive_file 104857600\nactive_file 7\n",
        );
        assert_eq!(free_in_group_mb(root.path()), Some(400));
    }
}
