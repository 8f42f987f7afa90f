//! Where the winners of `tegula tune` are kept from process to process: a directory, a file in it for each GPU, driver and version, and the
//! reading of that file.
//!
//! Reading is all that the library does with files, and it never fails a product: what cannot be used is told of through `tracing`, and the
//! cost model decides. `tegula tune` writes. What the text means is the business of [`plan::Tuned`](tegula_kernels::plan::Tuned).

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tegula_kernels::plan::{Key, Tuned, Unusable};

#[cfg(feature = "cuda")]
use crate::cuda::DeviceInfo;

/// The variable of the environment that moves the directory.
pub const VARIABLE: &str = "TEGULA_CACHE_DIR";

/// Bytes that a file may have: so many are winners for hundreds of thousands of problems.
const MOST: u64 = 64 << 20;

/// The directory: `$TEGULA_CACHE_DIR`, else `$XDG_CACHE_HOME/tegula`, else `~/.cache/tegula` (on Windows `%LOCALAPPDATA%\tegula`). It need not
/// exist yet. `None` where the environment names none.
pub fn directory() -> Option<PathBuf> {
    directory_by(|name| env::var_os(name).filter(|value| !value.is_empty()))
}

fn directory_by(get: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(own) = get(VARIABLE) {
        return Some(own.into());
    }
    let (home, below) = if cfg!(windows) { ("LOCALAPPDATA", "tegula") } else { ("HOME", ".cache/tegula") };
    // The specification of that variable has relative paths ignored.
    let shared = get("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    shared.map(|shared| shared.join("tegula")).or_else(|| Some(PathBuf::from(get(home)?).join(below)))
}

/// The file of a key, in the [directory].
pub fn file(key: &Key) -> Option<PathBuf> {
    Some(directory()?.join(name(key)))
}

/// `nvidia-h200-9.0-132-580.159-cuda-13.0-0.1.0.json`. Keys whose names are alike share a file, which holds for the one it names.
fn name(key: &Key) -> String {
    let Key { gpu, compute: (major, minor), multiprocessors, driver, tegula } = key;
    let whole = format!("{gpu}-{major}.{minor}-{multiprocessors}-{driver}-{tegula}").to_ascii_lowercase();
    let kept: String = whole.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    kept + ".json"
}

/// Reads the winners in a file; there are none where there is no file.
///
/// # Errors
/// [`Unusable`].
pub fn read(path: &Path, key: &Key) -> Result<Tuned, Unusable> {
    let unreadable = |error: io::Error| Unusable::Unreadable(error.to_string());
    // Looked at before it is opened: a pipe would keep a product waiting.
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Tuned::default()),
        found => found.map_err(unreadable)?,
    };
    if !found.is_file() {
        return Err(Unusable::Unreadable("it is no file".into()));
    }
    if found.len() > MOST {
        return Err(Unusable::Corrupt(format!("it has {} bytes", found.len())));
    }
    let mut text = Vec::new();
    File::open(path).and_then(|file| file.take(MOST).read_to_end(&mut text)).map_err(unreadable)?;
    let text = String::from_utf8(text).map_err(|_| Unusable::Corrupt("it is not UTF-8".into()))?;
    Tuned::parse(&text, key)
}

/// The version of the NVIDIA driver, where the operating system shows it.
pub fn driver_module() -> Option<String> {
    let version = fs::read_to_string("/sys/module/nvidia/version").ok()?;
    Some(version.trim().to_owned()).filter(|version| !version.is_empty())
}

/// What times measured on a GPU hold for.
#[cfg(feature = "cuda")]
pub fn key(gpu: &DeviceInfo) -> Key {
    let (major, minor) = gpu.driver;
    let cuda = format!("CUDA {major}.{minor}");
    Key {
        gpu: gpu.name.clone(),
        compute: gpu.compute,
        multiprocessors: gpu.multiprocessors,
        driver: driver_module().map_or_else(|| cuda.clone(), |version| format!("{version} {cuda}")),
        tegula: env!("CARGO_PKG_VERSION").into(),
    }
}

/// The winners for a GPU, read at the first call in a process.
#[cfg(feature = "cuda")]
pub(crate) fn tuned(gpu: &DeviceInfo) -> &'static Tuned {
    use std::sync::OnceLock;

    use tegula_kernels::plan::UNTUNED;
    /// By ordinal. No machine has more GPUs; if one had, they would go untuned.
    static TABLES: [OnceLock<Tuned>; 64] = [const { OnceLock::new() }; 64];
    TABLES.get(gpu.ordinal).map_or(&UNTUNED, |table| table.get_or_init(|| found(&key(gpu))))
}

/// The winners for a key; none where they cannot be used, which is told.
#[cfg(feature = "cuda")]
fn found(key: &Key) -> Tuned {
    let Some(path) = file(key) else { return Tuned::default() };
    let file = path.display();
    match read(&path, key) {
        Ok(tuned) => {
            tracing::debug!(%file, winners = tuned.len(), "winners of tegula tune");
            tuned
        }
        Err(Unusable::Stale(of)) => {
            tracing::debug!(%file, %of, "winners of tegula tune are stale");
            Tuned::default()
        }
        Err(why) => {
            tracing::warn!(%file, %why, "winners of tegula tune cannot be used, the cost model decides; run tegula tune again");
            Tuned::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        let (gpu, driver, tegula) = ("NVIDIA H200".into(), "580.159 CUDA 13.0".into(), "1.2.3".into());
        Key { gpu, compute: (9, 0), multiprocessors: 132, driver, tegula }
    }

    #[test]
    fn the_environment_says_where() {
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
    fn a_file_is_named_after_its_key_and_leaves_the_directory_by_no_name() {
        assert_eq!(name(&key()), "nvidia-h200-9.0-132-580.159-cuda-13.0-1.2.3.json");
        let strange = Key { gpu: "../../Räuber\n/GPU".into(), ..key() };
        assert_eq!(name(&strange), "..-..-r-uber--gpu-9.0-132-580.159-cuda-13.0-1.2.3.json");
    }

    #[test]
    fn what_cannot_be_read_is_said_and_what_is_not_there_is_empty() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("winners.json");
        assert!(read(&path, &key()).unwrap().is_empty());
        assert!(read(&place.path().join("no/such/place"), &key()).unwrap().is_empty());
        fs::write(&path, Tuned::default().text(&key())).unwrap();
        assert!(read(&path, &key()).unwrap().is_empty());
        let other = Key { driver: "570.1 CUDA 12.8".into(), ..key() };
        assert_eq!(read(&path, &other).unwrap_err(), Unusable::Stale(key()));
        for bytes in [&b""[..], b"{\"key\": ", b"\xff", b"[]"] {
            fs::write(&path, bytes).unwrap();
            assert!(matches!(read(&path, &key()), Err(Unusable::Corrupt(_))), "{bytes:?}");
        }
        File::create(&path).unwrap().set_len(MOST + 1).unwrap();
        assert_eq!(read(&path, &key()).unwrap_err().to_string(), "is corrupt: it has 67108865 bytes");
        assert!(matches!(read(place.path(), &key()), Err(Unusable::Unreadable(_))));
        assert!(matches!(read(&path.join("below"), &key()), Err(Unusable::Unreadable(_))));
    }
}
