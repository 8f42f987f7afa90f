//! Free memory of the process: `MemAvailable` and the limits of its control groups (Linux).

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};

/// Bytes that reading the system's counters allocates.
const READING: usize = 64 << 10;

/// Bytes available without swapping, within the limits of the process's control groups.
///
/// `None` on systems without `/proc/meminfo`, and where no memory is left to read it.
pub fn available() -> Option<u128> {
    // Reading allocates infallibly: a failed allocation would abort the process.
    let mut reserve = Vec::<u8>::new();
    reserve.try_reserve_exact(READING).ok()?;
    drop(black_box(reserve));
    let kib = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    let free = kib.saturating_mul(1024);
    Some(groups().into_iter().fold(free, |free, group| free.min(group.free().unwrap_or(free))).into())
}

/// The number after the field `name`, which starts a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The files of a control group: the directory, the limit, and the field of unreclaimable memory.
struct Group {
    directory: PathBuf,
    limit: &'static str,
    used: &'static str,
}

impl Group {
    /// The limit minus anonymous memory. The kernel reclaims page cache, which does not count.
    fn free(&self) -> Option<u64> {
        let limit: u64 = fs::read_to_string(self.directory.join(self.limit)).ok()?.trim().parse().ok()?;
        let used = field(&fs::read_to_string(self.directory.join("memory.stat")).ok()?, self.used)?;
        Some(limit.saturating_sub(used))
    }
}

/// The control groups (versions 1 and 2) that can limit memory: the process's group and its
/// ancestors.
fn groups() -> Vec<Group> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    text.lines().flat_map(groups_of).collect()
}

/// The groups of a line `number:controllers:/path` of `/proc/self/cgroup`.
fn groups_of(line: &str) -> Vec<Group> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (root, limit, used) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max", "anon "),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "total_rss ")
        }
        _ => return Vec::new(),
    };
    let path = Path::new(path.trim_start_matches('/'));
    path.ancestors().map(|path| Group { directory: Path::new(root).join(path), limit, used }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_matched_by_its_full_name() {
        let text = "MemTotal:       100 kB\nMemAvailable:    64 kB\nanon 12\nanon_thp 7\n";
        assert_eq!(
            (field(text, "MemAvailable:"), field(text, "anon "), field(text, "Swap:")),
            (Some(64), Some(12), None)
        );
    }

    #[test]
    fn groups_of_both_versions_include_all_ancestors() {
        let limits = |line| groups_of(line).into_iter().map(|g| g.directory.join(g.limit)).collect::<Vec<_>>();
        assert_eq!(
            limits("0::/user/session"),
            ["/sys/fs/cgroup/user/session/memory.max", "/sys/fs/cgroup/user/memory.max", "/sys/fs/cgroup/memory.max"]
                .map(PathBuf::from)
        );
        let second = limits("5:cpuacct,memory:/");
        assert_eq!(second, [PathBuf::from("/sys/fs/cgroup/memory/memory.limit_in_bytes")]);
        assert!(limits("7:pids:/a").is_empty() && limits("nonsense").is_empty());
    }
}
