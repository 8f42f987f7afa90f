//! Assembled kernels on disk, so that the next process need not assemble them again.
//!
//! A cache never fails: what cannot be read or does not hold together is as good as absent, what cannot be written is
//! assembled again next time. It knows bytes and keys, nothing of drivers.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

use sha2::{Digest, Sha256};

/// First bytes of an entry; the digit is the version of its format.
const MAGIC: &[u8; 8] = b"tegula1\n";

/// What an entry was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// The key of a sequence of parts. Where one part ends and the next begins matters.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Key(hash.finalize().into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A directory of assembled kernels, or none.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    directory: Option<PathBuf>,
}

impl Cache {
    /// The user's cache: `$TEGULA_CACHE_DIR`, else `$XDG_CACHE_HOME/tegula`, else `$HOME/.cache/tegula`.
    pub fn from_env() -> Self {
        Self::at(cache_directory())
    }

    /// A cache in this directory, which need not exist yet.
    pub fn at(directory: Option<PathBuf>) -> Self {
        Cache { directory }
    }

    /// The entry of this key, if there is one and it is whole.
    pub fn read(&self, key: &Key) -> Option<Vec<u8>> {
        unseal(key, &fs::read(self.path(key)?).ok()?)
    }

    /// Keeps an entry if that is possible. Readers see all of it or none of it.
    pub fn write(&self, key: &Key, payload: &[u8]) {
        if let Some(path) = self.path(key) {
            // Not being able to keep it costs the next process some milliseconds and nothing else.
            let _ = write_whole(&path, &seal(key, payload));
        }
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{key}.cubin")))
    }
}

/// The directory that assembled kernels are kept in: `$TEGULA_CACHE_DIR`, else `$XDG_CACHE_HOME/tegula`, else
/// `$HOME/.cache/tegula`. It need not exist yet. `None` where the environment names none, or `TEGULA_CACHE_DIR` is empty.
pub fn cache_directory() -> Option<PathBuf> {
    directory(|name| env::var_os(name))
}

/// Where the environment says that the cache is. An empty `TEGULA_CACHE_DIR`, or `/dev/null`, says nowhere.
fn directory(get: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(own) = get("TEGULA_CACHE_DIR") {
        return Some(PathBuf::from(own)).filter(|own| !own.as_os_str().is_empty() && own != Path::new("/dev/null"));
    }
    // The XDG specification has relative paths ignored.
    let absolute = |name| get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("tegula"))
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::NotFound)?;
    fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

/// An entry: the magic, a checksum, the payload.
fn seal(key: &Key, payload: &[u8]) -> Vec<u8> {
    [MAGIC.as_slice(), &Key::of(&[&key.0, payload]).0, payload].concat()
}

/// The payload of an entry, unless it is cut short, damaged, of another format or under another key's name.
fn unseal(key: &Key, entry: &[u8]) -> Option<Vec<u8>> {
    let (checksum, payload) = entry.strip_prefix(MAGIC)?.split_first_chunk::<32>()?;
    (*checksum == Key::of(&[&key.0, payload]).0).then(|| payload.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::of(&[text.as_bytes()])
    }

    /// A fresh cache with one entry, and that entry's file.
    fn one_entry() -> (tempfile::TempDir, Cache, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(Some(home.path().join("not/yet/there")));
        cache.write(&key("a"), b"payload");
        let path = cache.path(&key("a")).unwrap();
        (home, cache, path)
    }

    #[test]
    fn keys_tell_parts_apart() {
        assert_eq!(Key::of(&[b"ab", b"c"]), Key::of(&[b"ab", b"c"]));
        assert_ne!(Key::of(&[b"ab", b"c"]), Key::of(&[b"a", b"bc"]));
        assert_ne!(Key::of(&[b"ab"]), Key::of(&[b"ab", b""]));
        assert_eq!(key("a").to_string().len(), 64);
    }

    #[test]
    fn what_was_written_is_read() {
        let (_home, cache, path) = one_entry();
        assert_eq!(cache.read(&key("a")).as_deref(), Some(b"payload".as_slice()));
        assert_eq!(cache.read(&key("b")), None);
        cache.write(&key("a"), b"");
        assert_eq!(cache.read(&key("a")).as_deref(), Some(b"".as_slice()));
        let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "no temporary file stays behind");
    }

    #[test]
    fn a_damaged_entry_is_absent() {
        let (_home, cache, path) = one_entry();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.read(&key("a")), None, "byte {at} changed");
        }
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(cache.read(&key("a")), None, "cut to {len} bytes");
        }
        fs::write(&path, whole).unwrap();
        assert!(cache.read(&key("a")).is_some());
    }

    #[test]
    fn an_entry_under_another_name_is_absent() {
        let (_home, cache, path) = one_entry();
        fs::rename(&path, cache.path(&key("b")).unwrap()).unwrap();
        assert_eq!(cache.read(&key("b")), None);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for directory in [Some(file.path().join("below/a/file")), Some(file.path().into()), None] {
            let cache = Cache::at(directory);
            cache.write(&key("a"), b"payload");
            assert_eq!(cache.read(&key("a")), None);
        }
    }

    #[test]
    fn the_environment_says_where() {
        let with = |vars: &'static [(&str, &str)]| {
            directory(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
        };
        let all = with(&[("TEGULA_CACHE_DIR", "/t"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]);
        assert_eq!(all, Some("/t".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]), Some("/x/tegula".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", ""), ("HOME", "/h")]), Some("/h/.cache/tegula".into()));
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("TEGULA_CACHE_DIR", ""), ("HOME", "/h")]), None);
        assert_eq!(with(&[("TEGULA_CACHE_DIR", "/dev/null"), ("HOME", "/h")]), None);
    }
}
