//! The report of `tegula doctor`.

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

/// The object of `--json`. `advice` is present where something can be improved.
#[derive(Debug, Serialize)]
pub struct Doctor {
    pub tegula: Tegula,
    pub cpu: Cpu,
    /// `None` where the operating system does not report it.
    pub memory: Option<Memory>,
    pub driver: Driver,
    pub gpus: Vec<Gpu>,
    /// The driver's cache of assembled kernels; `None` in a build without GPUs.
    pub cache: Option<Cache>,
    /// Whether a product succeeded on some device.
    pub ready: bool,
    /// That device, as in `--device`.
    pub device: Option<String>,
    /// The error of the default device.
    pub trouble: Option<String>,
}

/// The program.
#[derive(Debug, Serialize)]
pub struct Tegula {
    pub version: &'static str,
    pub os: &'static str,
    pub arch: &'static str,
    pub features: Vec<&'static str>,
    pub advice: Option<String>,
}

/// The processor.
#[derive(Debug, Serialize)]
pub struct Cpu {
    pub model: Option<String>,
    pub cores: Option<usize>,
    /// Threads of products in this process.
    pub threads: usize,
    /// What leaves it fewer threads than the machine has logical processors.
    pub limited_by: Option<&'static str>,
    /// SMT siblings and efficiency cores among the processors of this process, if any.
    pub topology: Option<String>,
    pub features: Vec<&'static str>,
    /// The micro-kernel of each element type.
    pub kernels: Vec<String>,
    pub advice: Option<String>,
}

/// The memory of the host, or of the container.
#[derive(Debug, Serialize)]
pub struct Memory {
    pub available_bytes: u64,
    pub total_bytes: u64,
}

/// The NVIDIA driver.
#[derive(Debug, Serialize)]
pub struct Driver {
    /// Whether it can be used.
    pub found: bool,
    /// Its version, where the operating system reports it.
    pub version: Option<String>,
    /// The newest CUDA version it supports.
    pub cuda: Option<String>,
    /// The reason why it cannot be used.
    pub why: Option<String>,
    pub advice: Option<String>,
}

/// A GPU.
#[derive(Debug, Serialize)]
pub struct Gpu {
    pub ordinal: usize,
    pub name: String,
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    pub multiprocessors: u32,
    pub memory_bytes: u64,
    /// The newest CUDA version that the driver supports, major and minor.
    pub cuda: (u32, u32),
    /// Whether its compute capability is supported.
    pub usable: bool,
    pub tuned: Tuned,
}

/// The tuned entries of a GPU.
#[derive(Debug, Serialize)]
pub struct Tuned {
    /// The path of the tuning cache; `None` without a cache directory.
    pub file: Option<String>,
    #[serde(rename = "winners")]
    pub entries: usize,
    /// Whether the GPU was calibrated.
    pub calibrated: bool,
    /// The reason why the cache is not used.
    pub trouble: Option<String>,
}

impl fmt::Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.entries) {
            (Some(file), 1..) => write!(f, "{} in {file}", tuned_entries(self.entries))?,
            _ => f.write_str("no tuned entries: the cost model chooses kernels")?,
        }
        f.write_str(if self.calibrated { ", calibrated for this GPU" } else { "" })
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gpu { name, compute: (major, minor), multiprocessors, memory_bytes, cuda: (cuda, point), .. } = self;
        let memory = gib(*memory_bytes);
        write!(
            f,
            "{name}, compute capability {major}.{minor}, {multiprocessors} multiprocessors, {memory:.1} GiB, \
             driver for CUDA {cuda}.{point}"
        )
    }
}

/// The driver's cache of assembled kernels.
#[derive(Debug, Serialize)]
pub struct Cache {
    /// `None` without a cache.
    pub directory: Option<String>,
    /// The environment variable that determines it.
    pub variable: Option<&'static str>,
    pub writable: bool,
    pub files: u64,
    pub bytes: u64,
    pub advice: Option<String>,
}

/// `1 tuned entry`, `2 tuned entries`.
fn tuned_entries(number: usize) -> String {
    if number == 1 { "1 tuned entry".into() } else { format!("{number} tuned entries") }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Prints a section for each part, advice behind an arrow, and the verdict.
pub fn print(out: &mut impl Write, doctor: &Doctor) -> io::Result<()> {
    let Doctor { tegula, cpu, memory, driver, gpus, cache, .. } = doctor;
    section(out, "tegula", &[tegula.to_string()], tegula.advice.as_deref())?;
    let kernels = cpu.kernels.chunks(3).map(|some| some.join(", "));
    let lines: Vec<_> = std::iter::once(cpu.to_string()).chain(kernels).collect();
    section(out, "cpu", &lines, cpu.advice.as_deref())?;
    if let Some(Memory { available_bytes, total_bytes }) = memory {
        let line = format!("{:.1} of {:.1} GiB available", gib(*available_bytes), gib(*total_bytes));
        section(out, "memory", &[line], None)?;
    }
    section(out, "driver", &[driver.to_string()], driver.advice.as_deref())?;
    for gpu in gpus {
        let old = (!gpu.usable)
            .then(|| "too old: compute capability 7.5 or newer is required; products run on other devices".into());
        let stale = || gpu.tuned.trouble.as_ref().map(|why| format!("{why}: run tegula tune again"));
        let lines = [gpu.to_string(), gpu.tuned.to_string()];
        section(out, &format!("cuda:{}", gpu.ordinal), &lines, old.or_else(stale).as_deref())?;
    }
    if let Some(cache) = cache {
        section(out, "cache", &[cache.to_string()], cache.advice.as_deref())?;
    }
    writeln!(out, "\n{}", doctor.verdict())
}

fn section(out: &mut impl Write, title: &str, lines: &[String], advice: Option<&str>) -> io::Result<()> {
    for (i, line) in lines.iter().enumerate() {
        writeln!(out, "{:<8} {line}", if i == 0 { title } else { "" })?;
    }
    advice.map_or(Ok(()), |advice| writeln!(out, "         → {advice}"))
}

impl Doctor {
    /// Whether products run, and on which device.
    pub fn verdict(&self) -> String {
        let gpu = |gpu: &&Gpu| self.device.as_deref() == Some(&format!("cuda:{}", gpu.ordinal));
        match (&self.device, &self.trouble) {
            (None, Some(trouble)) => format!("not ready: {trouble}"),
            (None, None) => "not ready".into(),
            (Some(device), Some(trouble)) => {
                format!("ready with --device {device} only; the default device fails: {trouble}")
            }
            (Some(device), None) => match self.gpus.iter().find(gpu) {
                Some(gpu) => format!("ready: products run on {device} ({})", gpu.name),
                None => "ready: products run on the CPU; no usable GPU".into(),
            },
        }
    }
}

impl fmt::Display for Tegula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tegula { version, os, arch, features, .. } = self;
        let features = if features.is_empty() { "none".into() } else { features.join(", ") };
        write!(f, "{version} for {os} {arch}, features: {features}")
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.model.as_deref().unwrap_or("unknown"))?;
        if let Some(cores) = self.cores {
            write!(f, ", {}", count(cores as u64, "core"))?;
        }
        let features = if self.features.is_empty() { "no vector features".into() } else { self.features.join(" ") };
        let limited_by = self.limited_by.map_or(String::new(), |what| format!(" (limited by {what})"));
        let topology = self.topology.as_ref().map_or(String::new(), |topology| format!("; {topology}"));
        write!(f, ", {} for this process{limited_by}{topology}; {features}", count(self.threads as u64, "thread"))
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.as_deref().map_or(String::new(), |version| format!(" {version}"));
        match (&self.why, &self.cuda) {
            (Some(why), _) => write!(f, "cannot be used: {why}"),
            (None, Some(cuda)) => write!(f, "NVIDIA{version} for CUDA {cuda}"),
            (None, None) => write!(f, "NVIDIA{version}, without a GPU"),
        }
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.variable.map_or(String::new(), |variable| format!(" (by {variable})"));
        let Some(directory) = &self.directory else { return write!(f, "none{by}") };
        let writable = if self.writable { "writable" } else { "not writable" };
        let mib = self.bytes as f64 / f64::from(1 << 20);
        write!(f, "{directory}{by}, {writable}, {}, {mib:.1} MiB", count(self.files, "file"))
    }
}

/// A count with its noun, such as `1 file` or `2 files`.
pub fn count(number: u64, name: &str) -> String {
    format!("{number} {name}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doctor() -> Doctor {
        let gpu = Gpu {
            ordinal: 0,
            name: "NVIDIA H200".into(),
            compute: (9, 0),
            multiprocessors: 132,
            memory_bytes: 139 << 30,
            cuda: (12, 8),
            usable: true,
            tuned: Tuned { file: Some("/t/h200.json".into()), entries: 2, calibrated: true, trouble: None },
        };
        let advice = Some("do this".into());
        Doctor {
            tegula: Tegula { version: "1.2.3", os: "linux", arch: "x86_64", features: vec!["cuda"], advice: None },
            cpu: Cpu {
                model: Some("A Processor".into()),
                cores: Some(8),
                threads: 1,
                limited_by: Some("OMP_NUM_THREADS"),
                topology: Some("8 processors on 4 cores (SMT)".into()),
                features: vec!["avx2", "fma"],
                kernels: vec!["avx2 f64 4x12".into(), "avx2 f32 6x16".into()],
                advice,
            },
            memory: Some(Memory { available_bytes: 3 << 29, total_bytes: 2 << 30 }),
            driver: Driver {
                found: true,
                version: Some("570.1".into()),
                cuda: Some("12.8".into()),
                why: None,
                advice: None,
            },
            gpus: vec![gpu],
            cache: Some(Cache {
                directory: Some("/c".into()),
                variable: Some("HOME"),
                writable: true,
                files: 2,
                bytes: 1 << 20,
                advice: None,
            }),
            ready: true,
            device: Some("cuda:0".into()),
            trouble: None,
        }
    }

    #[test]
    fn every_part_has_a_line() {
        let mut out = Vec::new();
        print(&mut out, &doctor()).unwrap();
        let expected = "\
tegula   1.2.3 for linux x86_64, features: cuda
cpu      A Processor, 8 cores, 1 thread for this process (limited by OMP_NUM_THREADS); 8 processors on 4 cores (SMT); avx2 fma
         avx2 f64 4x12, avx2 f32 6x16
         → do this
memory   1.5 of 2.0 GiB available
driver   NVIDIA 570.1 for CUDA 12.8
cuda:0   NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139.0 GiB, driver for CUDA 12.8
         2 tuned entries in /t/h200.json, calibrated for this GPU
cache    /c (by HOME), writable, 2 files, 1.0 MiB

ready: products run on cuda:0 (NVIDIA H200)
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn verdict_names_the_device_and_the_error() {
        let with = |device: Option<&str>, trouble: Option<&str>| {
            Doctor { device: device.map(Into::into), trouble: trouble.map(Into::into), ..doctor() }.verdict()
        };
        assert_eq!(with(Some("cpu"), None), "ready: products run on the CPU; no usable GPU");
        assert_eq!(
            with(Some("cpu"), Some("it fails")),
            "ready with --device cpu only; the default device fails: it fails"
        );
        assert_eq!(with(None, Some("nothing works")), "not ready: nothing works");
    }

    #[test]
    fn unusable_tuning_cache_is_reported() {
        let mut doctor = doctor();
        let trouble = Some("/t/h200.json is corrupt: EOF".into());
        doctor.gpus[0].tuned = Tuned { file: Some("/t/h200.json".into()), entries: 0, calibrated: false, trouble };
        let mut out = Vec::new();
        print(&mut out, &doctor).unwrap();
        let said = "         no tuned entries: the cost model chooses kernels\n         → /t/h200.json is corrupt: EOF: run tegula tune again\n";
        assert!(String::from_utf8(out).unwrap().contains(said));
    }

    #[test]
    fn unsupported_gpu_is_reported() {
        let mut old = doctor();
        old.gpus[0].usable = false;
        let mut out = Vec::new();
        print(&mut out, &old).unwrap();
        assert!(
            String::from_utf8(out)
                .unwrap()
                .contains("\n         → too old: compute capability 7.5 or newer is required")
        );
    }
}
