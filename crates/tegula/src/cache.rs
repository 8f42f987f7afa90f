//! The tuning cache on disk: its directory, one file per GPU, driver and version, and how files are
//! read and updated.
//!
//! `tegula tune` and `Device::autotune` write the files. An unusable file never fails a product: it
//! is logged through `tracing`, and the cost model decides. The format is that of
//! [`plan::TuningTable`](tegula_kernels::plan::TuningTable).

#[cfg(feature = "cuda")]
mod measured;
mod tuning_cache;

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
#[cfg(feature = "cuda")]
use std::sync::OnceLock;

#[cfg(feature = "cuda")]
pub(crate) use measured::MeasuredEntries;
use tegula_kernels::plan::{TuningKey, TuningTable, TuningTableError};
pub use tuning_cache::{TuningCache, TuningCacheError};

#[cfg(feature = "cuda")]
use crate::cuda::DeviceInfo;

/// The environment variable that sets the directory.
pub const VARIABLE: &str = "TEGULA_CACHE_DIR";

/// Largest size of a file in bytes: enough for tuned entries of hundreds of thousands of problems.
const MAX_BYTES: u64 = 64 << 20;

/// GPUs of a process that have tuned entries.
#[cfg(feature = "cuda")]
const MAX_GPUS: usize = 64;

/// The directory of the tuning cache, by the environment.
///
/// It is `$TEGULA_CACHE_DIR`, else `$XDG_CACHE_HOME/tegula`, else `~/.cache/tegula` (on Windows
/// `%LOCALAPPDATA%\tegula`).
///
/// It may not exist yet. `None` where the environment names none.
pub fn directory() -> Option<PathBuf> {
    directory_by(|name| env::var_os(name).filter(|value| !value.is_empty()))
}

fn directory_by(get: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(own) = get(VARIABLE) {
        return Some(own.into());
    }
    let (home, below) = if cfg!(windows) { ("LOCALAPPDATA", "tegula") } else { ("HOME", ".cache/tegula") };
    // The XDG specification ignores relative paths.
    let shared = get("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    shared.map(|shared| shared.join("tegula")).or_else(|| Some(PathBuf::from(get(home)?).join(below)))
}

/// The file of a key, in the [directory].
pub fn file(key: &TuningKey) -> Option<PathBuf> {
    Some(directory()?.join(name(key)))
}

/// The file name of a key, such as `nvidia-h200-9.0-132-580.159-cuda-13.0-0.1.0.json`. Keys may
/// share a name; the file is valid for the key in it.
fn name(key: &TuningKey) -> String {
    let TuningKey { gpu, compute: (major, minor), multiprocessors, driver, tegula } = key;
    let full = format!("{gpu}-{major}.{minor}-{multiprocessors}-{driver}-{tegula}").to_ascii_lowercase();
    let name: String = full.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    name + ".json"
}

/// Reads the tuned entries of a file; a missing file has none.
///
/// # Errors
/// [`TuningTableError`].
pub fn read(path: &Path, key: &TuningKey) -> Result<TuningTable, TuningTableError> {
    let unreadable = |error: io::Error| TuningTableError::Unreadable(error.to_string());
    // Checked before it is opened: a pipe would block the product.
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(TuningTable::default()),
        found => found.map_err(unreadable)?,
    };
    if !found.is_file() {
        return Err(TuningTableError::Unreadable("it is not a regular file".into()));
    }
    if found.len() > MAX_BYTES {
        return Err(TuningTableError::Corrupt(format!("it has {} bytes; the limit is {MAX_BYTES}", found.len())));
    }
    let mut text = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut text)).map_err(unreadable)?;
    let text = String::from_utf8(text).map_err(|_| TuningTableError::Corrupt("it is not UTF-8".into()))?;
    TuningTable::parse(&text, key)
}

/// The version of the NVIDIA kernel module, where the operating system exposes it.
pub fn driver_module() -> Option<String> {
    let version = fs::read_to_string("/sys/module/nvidia/version").ok()?;
    Some(version.trim().to_owned()).filter(|version| !version.is_empty())
}

/// The key of tuned entries that were measured on this GPU.
#[cfg(feature = "cuda")]
pub fn key(gpu: &DeviceInfo) -> TuningKey {
    let (major, minor) = gpu.driver;
    let cuda = format!("CUDA {major}.{minor}");
    TuningKey {
        gpu: gpu.name.clone(),
        compute: gpu.compute,
        multiprocessors: gpu.multiprocessors,
        driver: driver_module().map_or_else(|| cuda.clone(), |version| format!("{version} {cuda}")),
        tegula: env!("CARGO_PKG_VERSION").into(),
    }
}

/// The tuned entries of a GPU, read by the first call in a process.
#[cfg(feature = "cuda")]
pub(crate) fn tuned(gpu: &DeviceInfo) -> &'static TuningTable {
    use tegula_kernels::plan::UNTUNED;
    /// By ordinal. GPUs beyond stay untuned.
    static TABLES: [OnceLock<TuningTable>; MAX_GPUS] = [const { OnceLock::new() }; MAX_GPUS];
    TABLES.get(gpu.ordinal).map_or(&UNTUNED, |table| table.get_or_init(|| read_or_log(&key(gpu))))
}

/// The tuned entries of a GPU with those measured by this process, for devices that measure.
#[cfg(feature = "cuda")]
pub(crate) fn measured(gpu: &DeviceInfo) -> &'static MeasuredEntries {
    static ENTRIES: [OnceLock<MeasuredEntries>; MAX_GPUS] = [const { OnceLock::new() }; MAX_GPUS];
    // GPUs beyond share a slot, and with it entries: their names are legal or not used.
    ENTRIES[gpu.ordinal % MAX_GPUS].get_or_init(|| MeasuredEntries::new(tuned(gpu).clone()))
}

/// The tuned entries of a key; none where the file is unusable, which is logged.
#[cfg(feature = "cuda")]
fn read_or_log(key: &TuningKey) -> TuningTable {
    let Some(path) = file(key) else { return TuningTable::default() };
    let file = path.display();
    match read(&path, key) {
        Ok(tuned) => {
            tracing::debug!(%file, entries = tuned.len(), "tuning cache read");
            tuned
        }
        Err(TuningTableError::Stale(of)) => {
            tracing::debug!(%file, %of, "tuning cache is stale");
            TuningTable::default()
        }
        Err(why) => {
            tracing::warn!(%file, %why, "tuning cache is unusable, the cost model decides; run tegula tune again");
            TuningTable::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TuningKey {
        let (gpu, driver, tegula) = ("NVIDIA H200".into(), "580.159 CUDA 13.0".into(), "1.2.3".into());
        TuningKey { gpu, compute: (9, 0), multiprocessors: 132, driver, tegula }
    }

    #[test]
    fn directory_follows_the_environment() {
        let at = |variables: &[(&str, &str)]| {
            directory_by(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).into()))
        };
        let home = if cfg!(windows) { ("LOCALAPPDATA", "/h") } else { ("HOME", "/h") };
        let usual = if cfg!(windows) { "/h/tegula" } else { "/h/.cache/tegula" };
        assert_eq!((at(&[]), at(&[home])), (None, Some(usual.into())));
        assert_eq!(at(&[home, ("XDG_CACHE_HOME", "relative")]), Some(usual.into()));
        #[cfg(unix)]
        assert_eq!(at(&[home, ("XDG_CACHE_HOME", "/x")]), Some("/x/tegula".into()));
        assert_eq!(at(&[home, ("XDG_CACHE_HOME", "/x"), (VARIABLE, "own")]), Some("own".into()));
    }

    #[test]
    fn file_name_of_a_key_has_no_path_separator() {
        assert_eq!(name(&key()), "nvidia-h200-9.0-132-580.159-cuda-13.0-1.2.3.json");
        let strange = TuningKey { gpu: "../../Räuber\n/GPU".into(), ..key() };
        assert_eq!(name(&strange), "..-..-r-uber--gpu-9.0-132-580.159-cuda-13.0-1.2.3.json");
    }

    #[test]
    fn unusable_file_is_an_error_and_missing_file_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuned.json");
        assert!(read(&path, &key()).unwrap().is_empty());
        assert!(read(&folder.path().join("no/such/folder"), &key()).unwrap().is_empty());
        fs::write(&path, TuningTable::default().text(&key())).unwrap();
        assert!(read(&path, &key()).unwrap().is_empty());
        let other = TuningKey { driver: "570.1 CUDA 12.8".into(), ..key() };
        assert_eq!(read(&path, &other).unwrap_err(), TuningTableError::Stale(key()));
        for bytes in [&b""[..], b"{\"key\": ", b"\xff", b"[]"] {
            fs::write(&path, bytes).unwrap();
            assert!(matches!(read(&path, &key()), Err(TuningTableError::Corrupt(_))), "{bytes:?}");
        }
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(
            read(&path, &key()).unwrap_err().to_string(),
            "is corrupt: it has 67108865 bytes; the limit is 67108864"
        );
        assert!(matches!(read(folder.path(), &key()), Err(TuningTableError::Unreadable(_))));
        assert!(matches!(read(&path.join("below"), &key()), Err(TuningTableError::Unreadable(_))));
    }
}
