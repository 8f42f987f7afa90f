//! `tegula doctor`: examines the CPU, memory, driver, GPUs and cache, and computes a product.

mod processors;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs};

use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};
use tegula::element::Type;
use tegula::nd::{NdArray, NdEpilogueOperands};
use tegula::{Accuracy, Result};
use tegula_core::threads;
use tegula_cpu::{self as cpu, Isa};

use self::processors::Processors;
use crate::args::DeviceChoice;
use crate::engine::{self, Done, Operands};
use crate::progress::ProgressDisplay;
use crate::report::doctor::{Cache, Cpu, Doctor, Driver, Gpu, Memory, Tegula};

/// The oldest supported driver, the first for CUDA 12.
const DRIVER: u32 = 525;

/// Examines the machine. It leaves nothing but a kernel in the driver's cache.
pub fn examine() -> Doctor {
    let system = system();
    let (device, trouble) = ready();
    let (driver, gpus) = driver();
    let device_name = device.as_ref().map(|done| done.device.clone());
    Doctor {
        tegula: this_build(),
        cpu: processor(system.as_ref()),
        memory: system.as_ref().and_then(memory),
        driver,
        gpus,
        cache: cfg!(feature = "cuda").then(cache),
        ready: device.is_some(),
        device: device_name,
        trouble,
    }
}

/// The description of a device in reports.
pub fn machine(device: &tegula::Device) -> String {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = device.gpu() {
        return gpu.info().name.clone();
    }
    let Cpu { model, .. } = processor(system().as_ref());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {threads} threads ({})", model.unwrap_or_else(|| "a processor".into()), device.name())
}

/// The version of a GPU's driver, else the newest CUDA version it supports.
pub fn driver_version(device: &tegula::Device) -> Option<String> {
    if !device.name().starts_with("cuda") {
        return None;
    }
    let (driver, _) = driver();
    driver.version.or(driver.cuda.map(|cuda| format!("for CUDA {cuda}")))
}

fn this_build() -> Tegula {
    let slow = cfg!(debug_assertions);
    Tegula {
        version: env!("CARGO_PKG_VERSION"),
        os: env::consts::OS,
        arch: env::consts::ARCH,
        features: if cfg!(feature = "cuda") { vec!["cuda"] } else { Vec::new() },
        advice: slow.then(|| "this is a debug build, and slow: build with --release".into()),
    }
}

fn system() -> Option<System> {
    let wanted =
        RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()).with_memory(MemoryRefreshKind::nothing().with_ram());
    System::new_with_specifics(wanted).ok()
}

fn processor(system: Option<&System>) -> Cpu {
    let model = system.and_then(|system| system.cpus().first()).map(|cpu| cpu.brand().trim().to_owned());
    let kernels = engine::cpu_kernels();
    let allowed = Processors::of_this_process();
    let (threads, limited_by) = thread_limit(system.map_or(0, |system| system.cpus().len()), allowed.as_ref());
    Cpu {
        model: model.filter(|model| !model.is_empty()),
        cores: System::physical_core_count().ok(),
        threads,
        limited_by,
        topology: allowed.and_then(|allowed| allowed.note()),
        features: cpu::features().into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect(),
        advice: forced(env::var_os("TEGULA_CPU"), kernels.as_ref().err()),
        kernels: kernels.unwrap_or_default(),
    }
}

/// The threads of products, and what leaves fewer than `processors`.
fn thread_limit(processors: usize, allowed: Option<&Processors>) -> (usize, Option<&'static str>) {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    match (threads::environment_limit(), allowed) {
        (Some((variable, limit)), _) if limit < usable => (limit, Some(variable)),
        (_, Some(allowed)) if usable < allowed.count => (usable, Some("the CPU quota of the control group")),
        (_, Some(_)) => (usable, (usable < processors).then_some("the affinity mask")),
        (_, None) => (usable, (usable < processors).then_some("the affinity mask or a CPU quota")),
    }
}

/// Advice on `TEGULA_CPU` where it is invalid or below the CPU's best instruction set.
fn forced(value: Option<OsString>, wrong: Option<&tegula::Error>) -> Option<String> {
    let value = value.filter(|value| !value.is_empty())?;
    if let Some(error) = wrong {
        return Some(format!("{error}: unset TEGULA_CPU"));
    }
    let (chosen, best) = (Isa::chosen(Type::F32).ok()?, Isa::ALL.into_iter().rfind(|isa| isa.is_available())?);
    let value = value.to_string_lossy();
    (chosen < best).then(|| format!("TEGULA_CPU={value} limits the CPU: unset it to use {best}"))
}

fn memory(system: &System) -> Option<Memory> {
    let limit = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
    let total = system.total_memory().min(limit);
    // The limit by which products are refused.
    (total > 0).then(|| Memory { available_bytes: engine::free_memory().min(total), total_bytes: total })
}

/// The driver and its GPUs.
fn driver() -> (Driver, Vec<Gpu>) {
    let version = tegula::cache::driver_module();
    match engine::gpus() {
        Ok(gpus) => {
            let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
            let advice =
                visible.map(|list| format!("CUDA_VISIBLE_DEVICES={list} hides other GPUs: unset it to use all"));
            let cuda = gpus.first().map(|gpu| format!("{}.{}", gpu.cuda.0, gpu.cuda.1));
            (Driver { found: true, version, cuda, why: None, advice }, gpus)
        }
        Err(error) => {
            let why = match error {
                tegula::Error::NoDriver { why } => why,
                other => other.to_string(),
            };
            let advice = Some(advice_on_driver(version.as_deref()));
            (Driver { found: false, version, cuda: None, why: Some(why), advice }, Vec::new())
        }
    }
}

/// Advice for a driver that cannot be used. `version` is that of the kernel module.
fn advice_on_driver(version: Option<&str>) -> String {
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    let what = match (version, major) {
        _ if cfg!(not(feature = "cuda")) => "build with the feature cuda for a GPU".to_owned(),
        (Some(version), Some(major)) if major < DRIVER => {
            format!("update the NVIDIA driver {version} to {DRIVER} or newer")
        }
        (Some(version), _) => format!(
            "driver {version} is loaded, but its libraries are not found: start a container with GPUs (--gpus all), \
             or install the driver's libraries"
        ),
        (None, _) => format!("to use an NVIDIA GPU, install its driver, {DRIVER} or newer"),
    };
    format!("{what}; products run on the CPU until then")
}

#[cfg(feature = "cuda")]
fn cache_directory() -> Option<PathBuf> {
    tegula::cuda::cache_directory()
}

#[cfg(not(feature = "cuda"))]
fn cache_directory() -> Option<PathBuf> {
    None
}

fn cache() -> Cache {
    const AGAIN: &str = "every process assembles kernels again";
    let Some(directory) = cache_directory() else {
        let off = env::var_os("CUDA_CACHE_DISABLE").is_some_and(|value| value == "1");
        let (variable, advice) = match off {
            true => (Some("CUDA_CACHE_DISABLE"), format!("{AGAIN}: unset CUDA_CACHE_DISABLE to keep them")),
            false => (None, format!("{AGAIN}: set CUDA_CACHE_PATH to a directory to keep them")),
        };
        return Cache { directory: None, variable, writable: false, files: 0, bytes: 0, advice: Some(advice) };
    };
    let (files, bytes) = contents(&directory);
    let writable = is_writable(&directory);
    let advice =
        (!writable).then(|| format!("{AGAIN}: make it writable, or set CUDA_CACHE_PATH to a writable directory"));
    let variable = variable_of(&directory, |name| env::var_os(name));
    Cache { directory: Some(directory.to_string_lossy().into_owned()), variable, writable, files, bytes, advice }
}

/// The environment variable that determines the directory.
fn variable_of(directory: &Path, get: impl Fn(&str) -> Option<OsString>) -> Option<&'static str> {
    let determines = |name: &&str| get(name).is_some_and(|value| !value.is_empty() && directory.starts_with(value));
    ["CUDA_CACHE_PATH", "HOME", "APPDATA"].into_iter().find(determines)
}

/// Files and bytes in a directory tree, without following links.
fn contents(directory: &Path) -> (u64, u64) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.fold((0, 0), |(files, bytes), entry| match entry.metadata() {
        Ok(found) if found.is_file() => (files + 1, bytes + found.len()),
        Ok(found) if found.is_dir() => {
            let (below, more) = contents(&entry.path());
            (files + below, bytes + more)
        }
        _ => (files, bytes),
    })
}

/// Whether a file can be created in a directory, or in its nearest existing ancestor.
fn is_writable(directory: &Path) -> bool {
    let there = directory.ancestors().find(|path| path.as_os_str().is_empty() || path.exists());
    let there = there.map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
    there.is_some_and(|path| tempfile::tempfile_in(path).is_ok())
}

/// The product that succeeded, and the error of the default device.
fn ready() -> (Option<Done>, Option<String>) {
    match try_product(DeviceChoice::Auto) {
        Ok(done) => (Some(done), None),
        Err(first) => match try_product(DeviceChoice::Cpu) {
            Ok(done) => (Some(done), Some(first)),
            Err(last) => (None, Some(last)),
        },
    }
}

/// Computes and verifies a small product.
fn try_product(device: DeviceChoice) -> Result<Done, String> {
    let product = || -> Result<_> {
        let a = NdArray::from_vec(&[40, 33], (0..40 * 33).map(|i| (i % 11) as f32 - 5.0).collect())?;
        let mut c = NdArray::zeros(&[40, 40])?;
        let silent = ProgressDisplay::new(true, false);
        let (accuracy, finish) = (Accuracy::Full, NdEpilogueOperands::default());
        let operands = Operands {
            device,
            alpha: 1.0,
            a: a.view(),
            b: a.view().t(),
            beta: 0.0,
            finish,
            accuracy,
            batch_invariant: false,
        };
        let done = operands.multiply(&mut c, &silent)?;
        let verified = operands.verify(None, &c.view(), &silent)?;
        Ok((done, verified))
    };
    match product() {
        Ok((done, verified)) if verified.ok => Ok(done),
        Ok((done, _)) => Err(format!("wrong product on {}", done.device)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_product_is_correct() {
        assert_eq!(try_product(DeviceChoice::Cpu).map(|done| done.device), Ok("cpu".into()));
        assert!(try_product(DeviceChoice::Cuda(99)).is_err());
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn driver_advice_depends_on_the_installed_version() {
        assert!(advice_on_driver(None).contains("install its driver, 525 or newer"));
        assert!(advice_on_driver(Some("470.57.02")).contains("update the NVIDIA driver 470.57.02 to 525"));
        assert!(advice_on_driver(Some("550.54")).contains("--gpus all"));
    }

    #[test]
    fn cache_size_and_variable_are_found() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("a.cubin"), [0; 10]).unwrap();
        fs::create_dir_all(place.path().join("4/d")).unwrap();
        fs::write(place.path().join("4/d/b"), [0; 5]).unwrap();
        assert_eq!(contents(place.path()), (2, 15));
        assert_eq!(contents(&place.path().join("none")), (0, 0));
        assert!(is_writable(&place.path().join("not/yet/there")));
        assert!(!is_writable(&place.path().join("a.cubin/below")));
        let get = |name: &str| (name != "CUDA_CACHE_PATH").then(|| OsString::from("/h"));
        assert_eq!(variable_of(Path::new("/h/.nv"), get), Some("HOME"));
        assert_eq!(variable_of(Path::new("/h/.nv"), |_| Some("/h".into())), Some("CUDA_CACHE_PATH"));
        assert_eq!(variable_of(Path::new("/x/.nv"), get), None);
    }

    #[test]
    fn limiting_tegula_cpu_has_advice() {
        assert_eq!(forced(None, None), None);
        let error = tegula::Error::Unsupported { what: "TEGULA_CPU=x".into(), ty: Type::F32, device: "this".into() };
        assert!(forced(Some("x".into()), Some(&error)).unwrap().ends_with("unset TEGULA_CPU"));
    }
}
