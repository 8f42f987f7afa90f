//! The processors that the process may use, as Linux describes them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::report::doctor::count;

/// The processors of the affinity mask.
#[derive(Debug, PartialEq, Eq)]
pub struct Processors {
    /// Logical processors.
    pub count: usize,
    /// Cores: SMT siblings are one core.
    pub cores: usize,
    /// Those of efficiency cores, where there are cores of two kinds.
    pub efficiency: Option<usize>,
}

impl Processors {
    /// Those of this process; `None` where the system does not list them.
    pub fn of_this_process() -> Option<Processors> {
        Processors::read(Path::new("/"))
    }

    /// Reads the files below a root.
    fn read(root: &Path) -> Option<Processors> {
        let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
        let allowed = numbers(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)?;
        let devices = root.join("sys/devices");
        let siblings = |cpu: &usize| {
            let file = devices.join(format!("system/cpu/cpu{cpu}/topology/thread_siblings_list"));
            fs::read_to_string(file).unwrap_or_else(|_| cpu.to_string())
        };
        let cores: HashSet<_> = allowed.iter().map(siblings).collect();
        let efficiency = fs::read_to_string(devices.join("cpu_atom/cpus")).ok().and_then(|list| numbers(&list));
        let efficiency = efficiency.map(|list| allowed.iter().filter(|cpu| list.contains(cpu)).count());
        Some(Processors { count: allowed.len(), cores: cores.len(), efficiency })
    }

    /// What differs from one processor for each of equal cores; `None` if nothing does.
    pub fn note(&self) -> Option<String> {
        let processors = |number: usize| count(number as u64, "processor");
        let smt = (self.cores < self.count)
            .then(|| format!("{} on {} (SMT)", processors(self.count), count(self.cores as u64, "core")));
        let hybrid = self.efficiency.filter(|&some| some > 0);
        let hybrid = hybrid.map(|some| format!("{} on efficiency cores", processors(some)));
        let notes: Vec<_> = smt.into_iter().chain(hybrid).collect();
        (!notes.is_empty()).then(|| notes.join(", "))
    }
}

/// The numbers of a list such as `0-3,8`.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    };
    let ranges: Option<Vec<_>> = list.trim().split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_a_hybrid_machine_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        assert_eq!(Processors::read(root.path()), None);
        write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1-3,5-6\n");
        assert_eq!(Processors::read(root.path()), Some(Processors { count: 5, cores: 5, efficiency: None }));
        for (cpu, siblings) in [(1, "0-1"), (2, "2-3"), (3, "2-3"), (5, "5"), (6, "6")] {
            write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
        }
        write("sys/devices/cpu_atom/cpus", "4-7\n");
        let found = Processors::read(root.path()).unwrap();
        assert_eq!(found, Processors { count: 5, cores: 4, efficiency: Some(2) });
        let note = "5 processors on 4 cores (SMT), 2 processors on efficiency cores";
        assert_eq!(found.note().as_deref(), Some(note));
        assert_eq!(Processors { count: 2, cores: 2, efficiency: Some(0) }.note(), None);
        let siblings = Processors { count: 2, cores: 1, efficiency: None };
        assert_eq!(siblings.note().as_deref(), Some("2 processors on 1 core (SMT)"));
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(numbers("0-2,7\n"), Some(vec![0, 1, 2, 7]));
        assert_eq!(numbers("4"), Some(vec![4]));
        assert_eq!(numbers("a-2"), None);
    }
}
