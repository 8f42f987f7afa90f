//! Search for compilers and CUDA headers.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::CompileError;
use super::nvrtc::Nvrtc;

/// The environment variable with the path of NVRTC: its file or folder.
const VARIABLE: &str = "TEGULA_NVRTC";

/// A compiler.
pub(super) enum Compiler {
    /// The library.
    Nvrtc(Nvrtc),
    /// `nvcc`, with its version.
    Nvcc(PathBuf, String),
    /// `clang`, with its version and the folder of the CUDA toolkit.
    Clang { path: PathBuf, version: String, toolkit: PathBuf },
}

impl Compiler {
    /// Its name and version.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Nvrtc(nvrtc) => format!("NVRTC {}.{}", nvrtc.version.0, nvrtc.version.1),
            Self::Nvcc(_, version) => format!("nvcc {version}"),
            Self::Clang { version, .. } => format!("clang {version}"),
        }
    }
}

/// The compiler of this process. The search runs once.
pub(super) fn compiler() -> Result<&'static Compiler, CompileError> {
    static COMPILER: OnceLock<Result<Compiler, CompileError>> = OnceLock::new();
    COMPILER.get_or_init(|| search(env::var_os(VARIABLE))).as_ref().map_err(Clone::clone)
}

/// Searches for a compiler; `named` is the value of the environment variable.
pub(super) fn search(named: Option<OsString>) -> Result<Compiler, CompileError> {
    if let Some(path) = named.filter(|value| !value.is_empty()).map(PathBuf::from) {
        return load_named(&path).map(Compiler::Nvrtc);
    }
    let mut unusable = None;
    let mut load = |path: PathBuf| match Nvrtc::load(&path) {
        Ok(nvrtc) => Some(nvrtc),
        Err(reason) => {
            unusable.get_or_insert((path, reason));
            None
        }
    };
    let found = toolkit_folders().into_iter().flat_map(|folder| libraries(&folder)).find_map(&mut load);
    let found = found.or_else(|| NAMES.iter().find_map(|name| Nvrtc::load(Path::new(name)).ok()));
    let found = found.or_else(|| environment_folders().into_iter().flat_map(|f| libraries(&f)).find_map(&mut load));
    let found = found.or_else(|| python_folders().into_iter().flat_map(|f| libraries(&f)).find_map(&mut load));
    if let Some(nvrtc) = found {
        return Ok(Compiler::Nvrtc(nvrtc));
    }
    if let Some((path, version)) = program("nvcc", "release ", &toolkit_folders()) {
        return Ok(Compiler::Nvcc(path, version));
    }
    // Clang needs the headers and the device library of a CUDA toolkit.
    if let Some(toolkit) = toolkits().into_iter().find(|root| root.join("include/cuda_runtime.h").exists())
        && let Some((path, version)) = program("clang", "version ", &[])
    {
        return Ok(Compiler::Clang { path, version, toolkit });
    }
    Err(match unusable {
        Some((path, reason)) => CompileError::Library { path, reason },
        None => CompileError::NoCompiler,
    })
}

fn load_named(path: &Path) -> Result<Nvrtc, CompileError> {
    let unusable = |reason: String| CompileError::Named { path: path.to_owned(), reason };
    let file = if path.is_dir() {
        let folders = ["", "lib64", "lib", "bin"].iter().map(|sub| path.join(sub));
        folders.flat_map(|folder| libraries(&folder)).next().ok_or_else(|| unusable("it has no NVRTC".to_owned()))?
    } else {
        path.to_owned()
    };
    Nvrtc::load(&file).map_err(unusable)
}

/// File names of NVRTC for the system's loader.
const NAMES: [&str; 8] = [
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so.11.2",
    "libnvrtc.so",
    "nvrtc64_130_0.dll",
    "nvrtc64_120_0.dll",
    "nvrtc64_112_0.dll",
    "libnvrtc.dylib",
];

/// NVRTC libraries in a folder, newest first.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let mut found = entries(folder, |name| {
        let unix = name.starts_with("libnvrtc.so") || name == "libnvrtc.dylib";
        unix || (name.starts_with("nvrtc64_") && name.ends_with(".dll") && !name.contains("alt"))
    });
    // `.so.13` comes before `.so.12` and before the link without a version.
    found.sort_by(|a, b| b.cmp(a));
    found
}

/// Files and folders in a folder, by name.
fn entries(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(&wanted))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Folders of CUDA toolkits.
fn toolkits() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].iter().filter_map(env::var_os).map(PathBuf::from).collect();
    let mut installed = entries(Path::new("/usr/local"), |name| name.starts_with("cuda"));
    installed.extend(entries(Path::new(r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA"), |_| true));
    installed.reverse();
    roots.push(PathBuf::from("/usr/local/cuda"));
    roots.push(PathBuf::from("/opt/cuda"));
    roots.extend(installed);
    roots
}

fn toolkit_folders() -> Vec<PathBuf> {
    let under = [
        "lib64",
        "lib",
        "lib/x86_64-linux-gnu",
        "targets/x86_64-linux/lib",
        "targets/sbsa-linux/lib",
        "bin",
        "bin/x64",
    ];
    let mut folders: Vec<PathBuf> = toolkits().iter().flat_map(|root| under.map(|sub| root.join(sub))).collect();
    folders.extend(["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"].map(PathBuf::from));
    folders
}

/// Folders of active Python environments.
fn environment_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for root in ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(env::var_os).map(PathBuf::from) {
        folders.extend(["lib", "targets/x86_64-linux/lib", "Library/bin"].map(|sub| root.join(sub)));
        let mut packages = entries(&root.join("lib"), |name| name.starts_with("python"));
        packages.push(root.join("Lib"));
        folders.extend(packages.iter().flat_map(|python| package_folders(&python.join("site-packages"))));
    }
    folders
}

/// Package folders of the Python on the PATH.
fn python_folders() -> Vec<PathBuf> {
    let ask = |python: &str| {
        let output = Command::new(python).args(["-c", "import sys; print('\\n'.join(sys.path))"]).output().ok()?;
        String::from_utf8(output.stdout).ok().filter(|_| output.status.success())
    };
    let paths = ["python3", "python"].iter().find_map(|python| ask(python)).unwrap_or_default();
    paths.lines().filter(|line| !line.is_empty()).flat_map(|line| package_folders(Path::new(line))).collect()
}

/// Library folders of NVIDIA's Python packages.
fn package_folders(packages: &Path) -> Vec<PathBuf> {
    let mut roots = entries(&packages.join("nvidia"), |name| name.starts_with("cu"));
    // `cu13` comes before `cu12` and before `cuda_nvrtc`.
    roots.sort_by_key(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let number: u32 = name.trim_start_matches("cu").parse().unwrap_or(0);
        std::cmp::Reverse(number)
    });
    roots.iter().flat_map(|root| ["lib", "bin", "bin/x86_64"].map(|sub| root.join(sub))).collect()
}

/// The path and version of a program on the PATH or in `folders`. The version follows `before` in
/// its output.
fn program(name: &str, before: &str, folders: &[PathBuf]) -> Option<(PathBuf, String)> {
    let path = env::var_os("PATH")?;
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    let mut candidates = env::split_paths(&path).chain(folders.iter().cloned()).map(|folder| folder.join(&file));
    candidates.find_map(|candidate| {
        let output = Command::new(candidate.is_file().then_some(&candidate)?).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, after) = text.split_once(before)?;
        let version = after.split(|c: char| !(c.is_ascii_digit() || c == '.')).next()?;
        output.status.success().then(|| (candidate.clone(), version.trim_end_matches('.').to_owned()))
    })
}

/// Folders of the CUDA headers of the same installation as a library.
pub(super) fn include_folders(library: &Path) -> Vec<PathBuf> {
    let library = library.canonicalize().unwrap_or_else(|_| library.to_owned());
    let Some(folder) = library.parent() else { return Vec::new() };
    let mut roots: Vec<PathBuf> = Vec::new();
    // `lib/libnvrtc.so`, `bin/x64/nvrtc.dll`
    roots.extend(folder.ancestors().skip(1).take(2).map(|root| root.join("include")));
    if folder.parent().and_then(Path::file_name).is_some_and(|name| name == "cuda_nvrtc") {
        let packages = folder.ancestors().nth(2).unwrap_or(folder);
        roots.extend(entries(packages, |name| name.starts_with("cu")).iter().map(|root| root.join("include")));
    }
    with_headers(roots)
}

/// Folders of CUDA headers in toolkits of any version.
pub(super) fn toolkit_includes() -> Vec<PathBuf> {
    with_headers(toolkits().iter().map(|root| root.join("include")).collect())
}

/// The folders that contain CUDA headers, and their `cccl` folders.
fn with_headers(roots: Vec<PathBuf>) -> Vec<PathBuf> {
    let marks = ["cuda_fp16.h", "crt", "cuda", "cub", "curand_kernel.h"];
    let mut found: Vec<PathBuf> = Vec::new();
    for root in roots {
        for folder in [root.join("cccl"), root] {
            if marks.iter().any(|mark| folder.join(mark).exists()) && !found.contains(&folder) {
                found.push(folder);
            }
        }
    }
    found
}

/// The folder for the headers that NVRTC contains, in Tegula's cache folder of this user.
pub(super) fn header_cache(version: (u32, u32)) -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let (home, below) = if cfg!(windows) { ("LOCALAPPDATA", "tegula") } else { ("HOME", ".cache/tegula") };
    let cache = set("TEGULA_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("tegula")))
        .or_else(|| set(home).map(|path| path.join(below)))
        .unwrap_or_else(env::temp_dir);
    cache.join(format!("nvrtc-{}.{}", version.0, version.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_named_file_that_is_not_nvrtc_is_an_error_with_its_name() {
        for path in ["/nowhere/libnvrtc.so", env!("CARGO_MANIFEST_DIR")] {
            let error = search(Some(path.into())).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(path) && error.contains("TEGULA_NVRTC"), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn include_folders_of_a_toolkit_are_beside_its_library() {
        let root = env::temp_dir().join(format!("tegula-find-{}", std::process::id()));
        std::fs::create_dir_all(root.join("lib64")).unwrap();
        std::fs::create_dir_all(root.join("include/cccl/cuda")).unwrap();
        std::fs::write(root.join("include/cuda_fp16.h"), "").unwrap();
        std::fs::write(root.join("lib64/libnvrtc.so.13"), "").unwrap();
        let found = include_folders(&root.join("lib64/libnvrtc.so.13"));
        let root = root.canonicalize().unwrap();
        assert_eq!(found, [root.join("include/cccl"), root.join("include")]);
        std::fs::remove_dir_all(root).unwrap();
    }
}
