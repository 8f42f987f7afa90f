//! Updates of the tuning cache: a file of tuned entries that is read, extended and replaced
//! atomically.
//!
//! A lock is held meanwhile, so that concurrent programs keep the entries of all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tegula_kernels::plan::{Calibrated, Problem, TunedEntry, TuningKey, TuningTable, TuningTableError};

use super::{VARIABLE, file, read};

/// The file of tuned entries of a key, to be extended.
#[derive(Debug)]
pub struct TuningCache {
    key: TuningKey,
    path: PathBuf,
}

/// A tuning cache that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuningCacheError {
    /// The environment names no directory.
    #[error("no tuning cache directory; set {VARIABLE}")]
    NoDirectory,
    /// The directory cannot be created.
    #[error("{}: cannot be created: {error}; set {VARIABLE} to another directory", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The file of tuned entries cannot be read, and is left alone.
    #[error("{}: cannot be read: {why}; set {VARIABLE} to another directory", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// A file in it cannot be written.
    #[error("{}: cannot be written: {error}; set {VARIABLE} to another directory", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

impl TuningCache {
    /// Opens the file of a key in the cache [directory](super::directory()), which is created if
    /// missing. Also returns a warning for a stale or corrupt file, which will be replaced.
    ///
    /// # Errors
    /// [`TuningCacheError`] where it cannot be read or written.
    pub fn open(key: TuningKey) -> Result<(TuningCache, Option<String>), TuningCacheError> {
        TuningCache::at(file(&key).ok_or(TuningCacheError::NoDirectory)?, key)
    }

    fn at(path: PathBuf, key: TuningKey) -> Result<(TuningCache, Option<String>), TuningCacheError> {
        let directory = path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(directory)
            .map_err(|error| TuningCacheError::Directory { directory: directory.into(), error })?;
        if path.is_dir() {
            return Err(TuningCacheError::File { path, error: io::ErrorKind::IsADirectory.into() });
        }
        let cache = TuningCache { key, path };
        cache.open_beside("lock")?;
        let warning = cache.entries()?.err();
        let warning = warning.map(|why| format!("{} {why}; it will be replaced", cache.path.display()));
        Ok((cache, warning))
    }

    /// The entries of the file, or why it is stale or corrupt.
    ///
    /// # Errors
    /// [`TuningCacheError::Unreadable`]: its entries may be intact.
    fn entries(&self) -> Result<Result<TuningTable, TuningTableError>, TuningCacheError> {
        match read(&self.path, &self.key) {
            Err(TuningTableError::Unreadable(why)) => {
                Err(TuningCacheError::Unreadable { path: self.path.clone(), why })
            }
            found => Ok(found),
        }
    }

    /// Adds an entry to those in the file.
    ///
    /// # Errors
    /// [`TuningCacheError`]; the file is unchanged then.
    pub fn keep(&self, problem: Problem, entry: TunedEntry) -> Result<(), TuningCacheError> {
        self.update(|table| table.insert(problem, entry))
    }

    /// Sets the measured properties of the GPU in the file.
    ///
    /// # Errors
    /// As [`keep`](Self::keep).
    pub fn keep_calibrated(&self, calibrated: Calibrated) -> Result<(), TuningCacheError> {
        self.update(|table| table.set_calibrated(calibrated))
    }

    fn update(&self, change: impl FnOnce(&mut TuningTable)) -> Result<(), TuningCacheError> {
        let _locked = self.lock()?;
        // Entries of a stale or corrupt file are dropped.
        let mut all = self.entries()?.unwrap_or_default();
        change(&mut all);
        // The lock makes this temporary file ours; one that an ended program left is overwritten.
        let (path, mut temporary) = self.open_beside("new")?;
        let text = all.text(&self.key);
        let written = temporary.set_len(0).and_then(|()| temporary.write_all(text.as_bytes()));
        let written = written.and_then(|()| temporary.sync_all()).and_then(|()| fs::rename(&path, &self.path));
        written.map_err(|error| TuningCacheError::File { path, error })
    }

    /// Waits for the lock, which ends when the returned file is dropped. The lock file is separate,
    /// since the cache file is replaced, and is never removed: two programs could lock a removed
    /// one.
    fn lock(&self) -> Result<File, TuningCacheError> {
        let (path, file) = self.open_beside("lock")?;
        loop {
            match file.lock() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // On file systems without locks the last of two concurrent programs wins.
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot be locked: tune with one program at a time");
                    return Ok(file);
                }
                Ok(()) => return Ok(file),
            }
        }
    }

    /// Opens or creates the file with another extension after its own, to write.
    fn open_beside(&self, extension: &str) -> Result<(PathBuf, File), TuningCacheError> {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{extension}"));
        let path = PathBuf::from(path);
        match File::options().create(true).truncate(false).write(true).open(&path) {
            Ok(file) => Ok((path, file)),
            Err(error) => Err(TuningCacheError::File { path, error }),
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
        let (cache, warning) = TuningCache::at(path.clone(), key()).unwrap();
        assert!(warning.is_none() && !path.exists(), "no file before the first entry");
        cache.keep(problem(1), entry("a")).unwrap();
        cache.keep(problem(2), entry("b")).unwrap();
        assert_eq!(kept(&path), [1, 2]);
        let (again, warning) = TuningCache::at(path.clone(), key()).unwrap();
        again.keep(problem(3), entry("c")).unwrap();
        again.keep(problem(1), entry("d")).unwrap();
        assert_eq!((warning, kept(&path)), (None, vec![1, 2, 3]));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"d\"") && !text.contains("\"a\""), "{text}");
    }

    #[test]
    fn calibrated_properties_and_entries_are_kept_together() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        let (cache, _) = TuningCache::at(path.clone(), key()).unwrap();
        let measured = Calibrated { memory_bandwidth: 2_000_000, clock: 1700, power_limited_gflops: 900_000 };
        cache.keep(problem(1), entry("a")).unwrap();
        cache.keep_calibrated(measured).unwrap();
        cache.keep(problem(2), entry("b")).unwrap();
        let read = read(&path, &key()).unwrap();
        assert_eq!((read.calibrated(), kept(&path)), (Some(measured), vec![1, 2]));
    }

    #[test]
    fn concurrent_runs_keep_entries_of_both() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        let ([one, other], own) = ([(); 2].map(|()| TuningCache::at(path.clone(), key()).unwrap().0), [1, 4]);
        one.keep(problem(own[0]), entry("a")).unwrap();
        other.keep(problem(own[1]), entry("b")).unwrap();
        one.keep(problem(2), entry("a")).unwrap();
        assert_eq!(kept(&path), [1, 2, 4]);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "the lock file and no other");
    }

    /// Adds `COUNT` entries of its own, as a run of `tegula tune` does.
    fn keep_many(path: &Path, writer: usize) {
        let (cache, _) = TuningCache::at(path.to_owned(), key()).unwrap();
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
        const NAME: &str = "cache::tuning_cache::tests::eight_concurrent_processes_lose_no_entry";
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
            let (cache, warning) = TuningCache::at(path.clone(), key()).unwrap();
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
        assert!(why.contains("cannot be written: is a directory"), "{why}");
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

    /// A loop of links stands for a file that cannot be opened for the moment, also for root.
    #[cfg(target_os = "linux")]
    #[test]
    fn unreadable_file_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        let (cache, _) = TuningCache::at(path.clone(), key()).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        for why in [cache.keep(problem(1), entry("a")).unwrap_err(), TuningCache::at(path.clone(), key()).unwrap_err()]
        {
            assert!(
                matches!(why, TuningCacheError::Unreadable { .. }) && why.to_string().lines().count() == 1,
                "{why}"
            );
        }
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink(), "it is left alone");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn full_disk_error_is_one_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        let (cache, _) = TuningCache::at(path.clone(), key()).unwrap();
        cache.keep(problem(1), entry("a")).unwrap();
        std::os::unix::fs::symlink("/dev/full", place.path().join("winners.json.new")).unwrap();
        let why = cache.keep(problem(2), entry("b")).unwrap_err().to_string();
        assert!(why.contains("winners.json.new: cannot be written: ") && why.lines().count() == 1, "{why}");
        assert_eq!(kept(&path), [1], "the file is unchanged");
    }

    #[test]
    fn temporary_file_of_an_ended_program_is_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        fs::write(place.path().join("winners.json.new"), "x".repeat(10_000)).unwrap();
        let (cache, _) = TuningCache::at(path.clone(), key()).unwrap();
        cache.keep(problem(1), entry("a")).unwrap();
        assert_eq!(kept(&path), [1]);
    }
}
