//! How much memory the process can still get: the system's count and the limits of its control
//! groups.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};

/// Bytes that reading the system's counts takes.
const READING: usize = 64 << 10;

/// Bytes that can be had without swapping, within the limits of the control groups of the process;
/// `None` on systems without `/proc/meminfo`, and where no memory is left to read it.
pub fn available() -> Option<u128> {
    // Reading allocates in pieces that would end the process if they failed.
    let mut reserve = Vec::<u8>::new();
    reserve.try_reserve_exact(READING).ok()?;
    drop(black_box(reserve));
    let kib = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    let free = kib.saturating_mul(1024);
    Some(groups().into_iter().fold(free, |free, group| free.min(group.free().unwrap_or(free))).into())
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The files of one control group: where its limit stands, and the name of what cannot be
/// reclaimed.
struct Group {
    folder: PathBuf,
    limit: &'static str,
    used: &'static str,
}

impl Group {
    /// The limit less anonymous memory. Page cache does not count: the kernel reclaims it.
    fn free(&self) -> Option<u64> {
        let limit: u64 = fs::read_to_string(self.folder.join(self.limit)).ok()?.trim().parse().ok()?;
        let used = field(&fs::read_to_string(self.folder.join("memory.stat")).ok()?, self.used)?;
        Some(limit.saturating_sub(used))
    }
}

/// The control groups of the process that may limit memory: its own and all above, of versions 1
/// and 2.
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
    path.ancestors().map(|path| Group { folder: Path::new(root).join(path), limit, used }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemTotal:       100 kB\nMemAvailable:    64 kB\nanon 12\nanon_thp 7\n";
        assert_eq!(
            (field(text, "MemAvailable:"), field(text, "anon "), field(text, "Swap:")),
            (Some(64), Some(12), None)
        );
    }

    #[test]
    fn groups_of_both_versions_are_looked_up_to_their_root() {
        let folders = |line| groups_of(line).into_iter().map(|g| g.folder.join(g.limit)).collect::<Vec<_>>();
        assert_eq!(
            folders("0::/user/session"),
            ["/sys/fs/cgroup/user/session/memory.max", "/sys/fs/cgroup/user/memory.max", "/sys/fs/cgroup/memory.max"]
                .map(PathBuf::from)
        );
        let second = folders("5:cpuacct,memory:/");
        assert_eq!(second, [PathBuf::from("/sys/fs/cgroup/memory/memory.limit_in_bytes")]);
        assert!(folders("7:pids:/a").is_empty() && folders("nonsense").is_empty());
    }
}
