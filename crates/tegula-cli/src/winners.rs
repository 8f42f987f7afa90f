//! Winners as `tegula tune` keeps them: a file that is read, added to and replaced as a whole.
//!
//! Reading, adding and replacing are done under a lock, so that runs at the same time leave the winners of all; none can tear the file.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tegula::cache;
use tegula_files::ReportFile;
use tegula_kernels::plan::{Key, Problem, Winner};

use crate::failure::{Failure, Result};

/// The winners of a key, in their file.
#[derive(Debug)]
pub struct Winners {
    key: Key,
    path: PathBuf,
    file: ReportFile,
}

impl Winners {
    /// The winners in the cache directory, which is made where it is missing. Refuses what cannot be written, before anything is measured.
    /// Gives also what is to be said of a file that is there and of no use: it will be made anew.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only GPUs have winners"))]
    pub fn open(key: Key) -> Result<(Winners, Option<String>)> {
        let none =
            || Failure::new(format!("there is no place to keep winners: set {}, or choose --dry-run", cache::VARIABLE));
        Winners::at(cache::file(&key).ok_or_else(none)?, key)
    }

    fn at(path: PathBuf, key: Key) -> Result<(Winners, Option<String>)> {
        let directory = path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(directory).map_err(|error| {
            let (place, variable) = (directory.display(), cache::VARIABLE);
            Failure::new(format!(
                "{place}: cannot be made: {error}; set {variable} to another directory, or choose --dry-run"
            ))
        })?;
        let file = ReportFile::new(&path)?;
        let told = cache::read(&path, &key).err().map(|why| format!("{} {why}; it is made anew", path.display()));
        Ok((Winners { key, path, file }, told))
    }

    /// Keeps a winner, beside those that are there.
    pub fn keep(&mut self, problem: Problem, winner: Winner) -> Result<()> {
        let _locked = self.lock()?;
        // What is of no use goes.
        let mut all = cache::read(&self.path, &self.key).unwrap_or_default();
        all.insert(problem, winner);
        Ok(self.file.replace(all.text(&self.key))?)
    }

    /// Waits until no other run is between reading and replacing; the lock ends with the file that is returned. It is a file of
    /// its own, since the winners' is replaced, and stays: one that is removed would be locked by two runs.
    fn lock(&self) -> Result<File> {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|error| Failure::new(format!("{}: cannot be written: {error}", path.display())))?;
        loop {
            match file.lock() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Some file systems have no locks. Then the last of two runs at the same time wins.
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot be locked: run one tegula tune at a time");
                    return Ok(file);
                }
                Ok(()) => return Ok(file),
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use tegula::element::Type;
    use tegula_kernels::plan::Tuned;

    use super::*;

    fn key() -> Key {
        let (gpu, driver, tegula) = ("NVIDIA H200".into(), "580.159".into(), "1.2.3".into());
        Key { gpu, compute: (9, 0), multiprocessors: 132, driver, tegula }
    }

    fn problem(m: usize) -> Problem {
        Problem { ty: Type::F32, accuracy: Default::default(), m, n: 64, k: 64, batches: 1, lies: Default::default() }
    }

    fn winner(recipe: &str) -> Winner {
        Winner { recipe: recipe.into(), microseconds: 3.5 }
    }

    /// The winners for products of 1 to 9 rows that a file holds.
    fn kept(path: &Path) -> Vec<usize> {
        let text = fs::read_to_string(path).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(Tuned::parse(&text, &key()).unwrap().len(), found["winners"].as_array().unwrap().len());
        found["winners"].as_array().unwrap().iter().map(|row| row["m"].as_u64().unwrap() as usize).collect()
    }

    #[test]
    fn a_directory_is_made_and_winners_are_added() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b/winners.json");
        let (mut winners, told) = Winners::at(path.clone(), key()).unwrap();
        assert!(told.is_none() && !path.exists(), "nothing is there before there is a winner");
        winners.keep(problem(1), winner("a")).unwrap();
        winners.keep(problem(2), winner("b")).unwrap();
        assert_eq!(kept(&path), [1, 2]);
        let (mut again, told) = Winners::at(path.clone(), key()).unwrap();
        again.keep(problem(3), winner("c")).unwrap();
        again.keep(problem(1), winner("d")).unwrap();
        assert_eq!((told, kept(&path)), (None, vec![1, 2, 3]));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"d\"") && !text.contains("\"a\""), "{text}");
    }

    #[test]
    fn two_runs_at_a_time_leave_the_winners_of_both() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        let ([mut one, mut other], own) = ([(); 2].map(|()| Winners::at(path.clone(), key()).unwrap().0), [1, 4]);
        one.keep(problem(own[0]), winner("a")).unwrap();
        other.keep(problem(own[1]), winner("b")).unwrap();
        one.keep(problem(2), winner("a")).unwrap();
        assert_eq!(kept(&path), [1, 2, 4]);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "nothing but the lock is beside it");
    }

    /// Keeps `COUNT` winners of its own, as a run of `tegula tune` does.
    fn keep_many(path: &Path, writer: usize) {
        let (mut winners, _) = Winners::at(path.to_owned(), key()).unwrap();
        (0..COUNT).for_each(|i| winners.keep(problem(1 + writer * COUNT + i), winner("a")).unwrap());
    }

    const WRITERS: usize = 8;
    const COUNT: usize = 20;

    fn all_kept(path: &Path) {
        assert_eq!(kept(path), (1..=WRITERS * COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn winners_eight_threads_at_once_lose_no_entry() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        std::thread::scope(|scope| {
            let path = &path;
            (0..WRITERS).for_each(|writer| _ = scope.spawn(move || keep_many(path, writer)));
        });
        all_kept(&path);
    }

    /// Set for the processes that `winners_eight_processes_at_once_lose_no_entry` starts: the file, and the number of the writer.
    const CHILD: [&str; 2] = ["TEGULA_TEST_WINNERS", "TEGULA_TEST_WRITER"];

    #[test]
    fn winners_eight_processes_at_once_lose_no_entry() {
        const NAME: &str = "winners::tests::winners_eight_processes_at_once_lose_no_entry";
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
    fn what_is_of_no_use_is_said_to_be_and_made_anew() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        let mut stale = Tuned::default();
        stale.insert(problem(9), winner("s"));
        let stale = stale.text(&Key { driver: "570.1".into(), ..key() });
        let cut = &stale[..stale.len() / 2];
        for (there, says) in [
            (stale.as_bytes(), "is stale: it is of NVIDIA H200 (9.0, 132 multiprocessors), driver 570.1"),
            (cut.as_bytes(), "is corrupt: Parse error at line:"),
            (b"", "is corrupt: Parse error at line:"),
            (b"\xff\n\x1b[31m", "is corrupt: it is not UTF-8"),
        ] {
            fs::write(&path, there).unwrap();
            let (mut winners, told) = Winners::at(path.clone(), key()).unwrap();
            let told = told.unwrap();
            assert!(told.contains(says) && told.ends_with("; it is made anew") && told.lines().count() == 1, "{told}");
            assert_eq!(fs::read(&path).unwrap(), there, "it is left alone until there is a winner");
            winners.keep(problem(5), winner("n")).unwrap();
            assert_eq!(kept(&path), [5]);
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused_before_anything_is_measured() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        let why = Winners::at(place.path().join("file/winners.json"), key()).unwrap_err().to_string();
        assert!(why.contains("file: cannot be made: ") && why.contains("set TEGULA_CACHE_DIR"), "{why}");
        let why = Winners::at(place.path().to_owned(), key()).unwrap_err().to_string();
        assert!(why.contains("cannot be written: it is a directory"), "{why}");
    }

    /// What stands for a directory without permission, also for those whom nothing is forbidden.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_directory_that_takes_no_files_is_refused() {
        let why = Winners::at("/proc/tegula/winners.json".into(), key()).unwrap_err().to_string();
        assert!(why.starts_with("/proc/tegula: cannot be made: "), "{why}");
        let why = Winners::at("/proc/self/winners.json".into(), key()).unwrap_err().to_string();
        assert!(why.contains("cannot be written"), "{why}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_one_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let (mut winners, _) = Winners::at(path, key()).unwrap();
        let why = winners.keep(problem(1), winner("a")).unwrap_err().to_string();
        assert!(why.contains("no space left on the device") && why.lines().count() == 1, "{why}");
    }
}
