//! The directory of the driver's kernel cache, for messages. Only the driver reads and writes it.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The directory in which the driver caches assembled kernels.
///
/// It is `$CUDA_CACHE_PATH`, else `$HOME/.nv/ComputeCache` (on Windows
/// `%APPDATA%\NVIDIA\ComputeCache`).
///
/// It may not exist yet. `None` where `CUDA_CACHE_DISABLE` is 1, or the environment names no
/// directory: then every process assembles its kernels again.
pub fn cache_directory() -> Option<PathBuf> {
    directory(|name| env::var_os(name).filter(|value| !value.is_empty()))
}

fn directory(get: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if get("CUDA_CACHE_DISABLE").is_some_and(|value| value == "1") {
        return None;
    }
    let (base, below) = if cfg!(windows) { ("APPDATA", "NVIDIA/ComputeCache") } else { ("HOME", ".nv/ComputeCache") };
    get("CUDA_CACHE_PATH").map(PathBuf::from).or_else(|| Some(PathBuf::from(get(base)?).join(below)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_follows_the_environment() {
        let at = |variables: &[(&str, &str)]| {
            directory(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).into()))
        };
        let home = if cfg!(windows) { ("APPDATA", "/h") } else { ("HOME", "/h") };
        let usual = if cfg!(windows) { "/h/NVIDIA/ComputeCache" } else { "/h/.nv/ComputeCache" };
        assert_eq!(at(&[]), None);
        assert_eq!(at(&[home]), Some(usual.into()));
        assert_eq!(at(&[home, ("CUDA_CACHE_PATH", "/c")]), Some("/c".into()));
        assert_eq!(at(&[home, ("CUDA_CACHE_PATH", "/c"), ("CUDA_CACHE_DISABLE", "1")]), None);
        assert_eq!(at(&[home, ("CUDA_CACHE_DISABLE", "0")]), Some(usual.into()));
    }
}
