//! The tuning cache of `tegula tune`: a file of tuned entries that is read, extended and replaced
//! atomically.
//!
//! A lock is held meanwhile, so that concurrent runs keep the entries of all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tegula::cache;
use tegula_files::ReportFile;
use tegula_kernels::plan::{Problem, TunedEntry, TuningKey};

use crate::failure::{Failure, Result};

/// The tuned entries of a key, in their file.
#[derive(Debug)]
pub struct TuningCache {
    key: TuningKey,
    path: PathBuf,
    file: ReportFile,
}

impl TuningCache {
    /// Opens the file in the cache directory, which is created if missing. Fails where it cannot be
    /// written, before anything is measured. Also returns a warning for an unusable file, which
    /// will be replaced.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only GPUs are tuned"))]
    pub fn open(key: TuningKey) -> Result<(TuningCache, Option<String>)> {
        let none = || Failure::new(format!("no tuning cache directory: set {}, or choose --dry-run", cache::VARIABLE));
        TuningCache::at(cache::file(&key).ok_or_else(none)?, key)
    }

    fn at(path: PathBuf, key: TuningKey) -> Result<(TuningCache, Option<String>)> {
        let directory = path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(directory).map_err(|error| {
            let (place, variable) = (directory.display(), cache::VARIABLE);
            Failure::new(format!(
                "{place}: cannot be created: {error}; set {variable} to another directory, or choose --dry-run"
            ))
        })?;
        let file = ReportFile::new(&path)?;
        let warning =
            cache::read(&path, &key).err().map(|why| format!("{} {why}; it will be replaced", path.display()));
        Ok((TuningCache { key, path, file }, warning))
    }

    /// Adds an entry to those in the file.
    pub fn keep(&mut self, problem: Problem, entry: TunedEntry) -> Result<()> {
        let _locked = self.lock()?;
        // Entries of an unusable file are dropped.
        let mut all = cache::read(&self.path, &self.key).unwrap_or_default();
        all.insert(problem, entry);
        Ok(self.file.replace(all.text(&self.key))?)
    }

    /// Waits for the lock, which ends when the returned file is dropped. The lock file is separate,
    /// since the cache file is replaced, and is never removed: two runs could lock a removed one.
    fn lock(&self) -> Result<File> {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|error| Failure::new(format!("{}: cannot be written: {error}", path.display())))?;
        loop {
            match file.lock() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // On file systems without locks the last of two concurrent runs wins.
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot be locked: run one tegula tune at a time");
                    return Ok(file);
                }
                Ok(()) => return Ok(file),
            }
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use tegula::element::Type;
    use tegula_kernels::plan::TuningTable;

    use super::*;

    fn key() -> TuningKey {
        let (gpu, driver, tegula) = ("NVIDIA H200".into(), "580.159".into(), "1.2.3".into());
        TuningKey { gpu, compute: (9, 0), multiprocessors: 132, driver, tegula }
    }

    fn problem(m: usize) -> Problem {
        Problem {
            ty: Type::F32,
            accuracy: Default::default(),
            m,
            n: 64,
            k: 64,
            batches: 1,
            layouts: Default::default(),
        }
    }

    fn entry(recipe: &str) -> TunedEntry {
        TunedEntry { recipe: recipe.into(), microseconds: 3.5 }
    }

    /// The m of each entry in a file.
    fn kept(path: &Path) -> Vec<usize> {
        let text = fs::read_to_string(path).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(TuningTable::parse(&text, &key()).unwrap().len(), found["winners"].as_array().unwrap().len());
        found["winners"].as_array().unwrap().iter().map(|row| row["m"].as_u64().unwrap() as usize).collect()
    }

    #[test]
    fn directory_is_created_and_entries_are_added() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b/winners.json");
        let (mut cache, warning) = TuningCache::at(path.clone(), key()).unwrap();
        assert!(warning.is_none() && !path.exists(), "no file before the first entry");
        cache.keep(problem(1), entry("a")).unwrap();
        cache.keep(problem(2), entry("b")).unwrap();
        assert_eq!(kept(&path), [1, 2]);
        let (mut again, warning) = TuningCache::at(path.clone(), key()).unwrap();
        again.keep(problem(3), entry("c")).unwrap();
        again.keep(problem(1), entry("d")).unwrap();
        assert_eq!((warning, kept(&path)), (None, vec![1, 2, 3]));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"d\"") && !text.contains("\"a\""), "{text}");
    }

    #[test]
    fn concurrent_runs_keep_entries_of_both() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        let ([mut one, mut other], own) = ([(); 2].map(|()| TuningCache::at(path.clone(), key()).unwrap().0), [1, 4]);
        one.keep(problem(own[0]), entry("a")).unwrap();
        other.keep(problem(own[1]), entry("b")).unwrap();
        one.keep(problem(2), entry("a")).unwrap();
        assert_eq!(kept(&path), [1, 2, 4]);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "the lock file and no other");
    }

    /// Adds `COUNT` entries of its own, as a run of `tegula tune` does.
    fn keep_many(path: &Path, writer: usize) {
        let (mut cache, _) = TuningCache::at(path.to_owned(), key()).unwrap();
        (0..COUNT).for_each(|i| cache.keep(problem(1 + writer * COUNT + i), entry("a")).unwrap());
    }

    const WRITERS: usize = 8;
    const COUNT: usize = 20;

    fn all_kept(path: &Path) {
        assert_eq!(kept(path), (1..=WRITERS * COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn eight_concurrent_threads_lose_no_entry() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        std::thread::scope(|scope| {
            let path = &path;
            (0..WRITERS).for_each(|writer| _ = scope.spawn(move || keep_many(path, writer)));
        });
        all_kept(&path);
    }

    /// Variables for the processes that `eight_concurrent_processes_lose_no_entry` starts: the
    /// file, and the number of the writer.
    const CHILD: [&str; 2] = ["TEGULA_TEST_WINNERS", "TEGULA_TEST_WRITER"];

    #[test]
    fn eight_concurrent_processes_lose_no_entry() {
        const NAME: &str = "tuning_cache::tests::eight_concurrent_processes_lose_no_entry";
        if let [Some(path), Some(writer)] = CHILD.map(std::env::var_os) {
            return keep_many(Path::new(&path), writer.to_str().unwrap().parse().unwrap());
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        let start = |writer: usize| {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", NAME]).env(CHILD[0], &path).env(CHILD[1], writer.to_string());
            child.stdout(std::process::Stdio::null()).spawn().unwrap()
        };
        let children: Vec<_> = (0..WRITERS).map(start).collect();
        children.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
        all_kept(&path);
    }

    #[test]
    fn unusable_file_is_reported_and_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        let mut stale = TuningTable::default();
        stale.insert(problem(9), entry("s"));
        let stale = stale.text(&TuningKey { driver: "570.1".into(), ..key() });
        let cut = &stale[..stale.len() / 2];
        for (there, says) in [
            (stale.as_bytes(), "is stale: it was measured on NVIDIA H200 (9.0, 132 multiprocessors), driver 570.1"),
            (cut.as_bytes(), "is corrupt: Parse error at line:"),
            (b"", "is corrupt: Parse error at line:"),
            (b"\xff\n\x1b[31m", "is corrupt: it is not UTF-8"),
        ] {
            fs::write(&path, there).unwrap();
            let (mut cache, warning) = TuningCache::at(path.clone(), key()).unwrap();
            let warning = warning.unwrap();
            assert!(
                warning.contains(says) && warning.ends_with("; it will be replaced") && warning.lines().count() == 1,
                "{warning}"
            );
            assert_eq!(fs::read(&path).unwrap(), there, "it is left alone until the first entry");
            cache.keep(problem(5), entry("n")).unwrap();
            assert_eq!(kept(&path), [5]);
        }
    }

    #[test]
    fn unwritable_file_is_refused_on_open() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        let why = TuningCache::at(place.path().join("file/winners.json"), key()).unwrap_err().to_string();
        assert!(why.contains("file: cannot be created: ") && why.contains("set TEGULA_CACHE_DIR"), "{why}");
        let why = TuningCache::at(place.path().to_owned(), key()).unwrap_err().to_string();
        assert!(why.contains("cannot be written: it is a directory"), "{why}");
    }

    /// /proc stands for a directory without write permission, also for root.
    #[cfg(target_os = "linux")]
    #[test]
    fn unwritable_directory_is_refused() {
        let why = TuningCache::at("/proc/tegula/winners.json".into(), key()).unwrap_err().to_string();
        assert!(why.starts_with("/proc/tegula: cannot be created: "), "{why}");
        let why = TuningCache::at("/proc/self/winners.json".into(), key()).unwrap_err().to_string();
        assert!(why.contains("cannot be written"), "{why}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn full_disk_error_is_one_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let (mut cache, _) = TuningCache::at(path, key()).unwrap();
        let why = cache.keep(problem(1), entry("a")).unwrap_err().to_string();
        assert!(why.contains("no space left on the device") && why.lines().count() == 1, "{why}");
    }
}
