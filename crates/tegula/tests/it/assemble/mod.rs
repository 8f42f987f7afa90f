//! NVIDIA's assembler must accept every printed kernel without spills, a stack frame, or a warning
//! that means a slow or wrong kernel.
//!
//! `tests/assembled.lock` stores the assembler results of each text. By default new texts are
//! assembled, and a random sample of the others, to compare; `cargo test` leaves that to the long
//! tests. `TEGULA_FULL=1` assembles and compares all. `cargo xtask bless` assembles new texts and
//! writes the file. `TEGULA_ASSEMBLE=PART` restricts a run to kernels whose names contain this
//! text.

mod inspect;
mod lock;
mod ptxas;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, thread};

use tegula_ir::Kernel;
use tegula_kernels::Variant;

use self::lock::{Lock, Text};
use self::ptxas::{Job, Resources, assemble, target, tool, version};
use crate::effort::{bless, full};
use crate::{kernels, variants};

/// Architecture of the benchmarked GPU.
const MEASURED: &str = "sm_90";
/// Each run compares one of this many stored results with the assembler.
const SAMPLE: usize = 256;

/// Source of PTX texts.
enum Source {
    Golden(String, Box<Kernel>),
    Variant(Variant),
}

impl Source {
    fn all() -> Vec<Source> {
        let lock = kernels::golden_kernels().into_iter().map(|(name, kernel)| Source::Golden(name, Box::new(kernel)));
        lock.chain(variants::all().into_iter().map(Source::Variant)).collect()
    }

    fn name(&self) -> String {
        match self {
            Source::Golden(name, _) => name.clone(),
            Source::Variant(variant) => variant.name(),
        }
    }

    /// Jobs whose names contain `filter`, for the target of the text, and for the benchmarked GPU.
    fn jobs(&self, filter: &str) -> Result<Vec<Job>, String> {
        let mut jobs = Vec::new();
        let mut add = |name: String, text: String, measured: bool| {
            let target = target(&text);
            if measured && target != MEASURED {
                jobs.push(Job { name: name.clone(), text: text.clone(), target: MEASURED.into() });
            }
            jobs.push(Job { name, text, target });
        };
        match self {
            Source::Golden(name, kernel) => add(name.clone(), variants::print((**kernel).clone())?.text, true),
            Source::Variant(variant) => {
                let text = print(variant.build())?;
                if variant.only_signals() {
                    let with_griddep = print(variant.build_with_griddep())?;
                    if text != with_griddep {
                        add(format!("{}.overlapping", variant.name()), with_griddep, true);
                    }
                }
                add(variant.name(), text, variants::measured(variant));
            }
        }
        jobs.retain(|job| job.name.contains(filter));
        Ok(jobs)
    }
}

fn print(kernel: tegula::Result<Kernel>) -> Result<String, String> {
    Ok(variants::print(kernel.map_err(|e| e.to_string())?)?.text)
}

/// The assembler, and the stored results.
struct Assembly {
    ptxas: Option<PathBuf>,
    lock: Lock,
    /// Part of the names of kernels to assemble.
    filter: String,
    /// The stored results to compare; `None` if they are from another assembler.
    sample: Option<usize>,
}

/// A text and its assembler result; `None` without an assembler.
type AssembledText = (Text, Option<Resources>);

impl Assembly {
    fn open() -> Assembly {
        let lock = Lock::read();
        let ptxas = tool("ptxas");
        let version = ptxas.as_deref().map_or(lock.version.clone(), version);
        let is_kept = version == lock.version;
        // Another assembler version assembles changed texts, and all texts in the full run.
        let lock = if is_kept || !(full() || bless()) { lock } else { Lock::empty(&version) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_micros());
        let sample = is_kept.then_some(now as usize % SAMPLE);
        let filter = env::var("TEGULA_ASSEMBLE").unwrap_or_default();
        Assembly { ptxas, lock, filter, sample }
    }

    /// Prints the texts of a source, and assembles those that are new or in the sample.
    fn assemble_source(&self, number: usize, source: &Source) -> Result<Vec<AssembledText>, String> {
        let jobs = source.jobs(&self.filter).map_err(|why| format!("{}: {why}", source.name()))?;
        let assemble_source = |job: Job| {
            let text = self.lock.text_of(&job);
            self.resources(number, &job, self.lock.get(&text)).map(|resources| (text, resources))
        };
        jobs.into_iter().map(assemble_source).collect()
    }

    fn resources(&self, number: usize, job: &Job, lock: Option<Resources>) -> Result<Option<Resources>, String> {
        let Some(ptxas) = &self.ptxas else { return Ok(lock) };
        if lock.is_some() && !full() && self.sample != Some(number % SAMPLE) {
            return Ok(lock);
        }
        let folder = tempfile::tempdir().map_err(|e| format!("a temporary folder: {e}"))?;
        let resources = assemble(ptxas, folder.path(), job)?;
        match lock {
            Some(lock) if lock != resources => {
                Err(format!("{} for {} takes {resources:?}; assembled.lock has {lock:?}", job.name, job.target))
            }
            _ => Ok(Some(resources)),
        }
    }
}

/// Assembles all sources, with a thread per processor.
fn assemble_all(assembly: &Assembly, sources: &[Source]) -> (Vec<AssembledText>, Vec<String>) {
    let (next, assembled, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(source) = sources.get(number) else { return };
            match assembly.assemble_source(number, source) {
                Ok(texts) => assembled.lock().unwrap().extend(texts),
                Err(why) => failures.lock().unwrap().push(why),
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    (assembled.into_inner().unwrap(), failures)
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn kernels_assemble_without_spills_and_warnings() {
    let assembly = Assembly::open();
    let (assembled, failures) = assemble_all(&assembly, &Source::all());
    assert!(!assembled.is_empty() || !failures.is_empty(), "no kernel has {:?} in its name", assembly.filter);
    let mut lock = Lock::empty(&assembly.lock.version);
    let unknown = assembled.iter().filter(|(_, resources)| resources.is_none()).count();
    assembled.into_iter().for_each(|(text, resources)| lock.insert(text, resources));
    // Also with failures, so that the others are not assembled again.
    if bless() && assembly.filter.is_empty() && assembly.ptxas.is_some() {
        lock.write();
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    if assembly.ptxas.is_none() {
        return println!("skipped: {unknown} changed texts, without an assembler");
    }
    if assembly.filter.is_empty() && !bless() && assembly.sample.is_some() {
        let changed = lock.differences(&Lock::read());
        assert!(
            changed.is_empty(),
            "all kernels assemble, but assembled.lock is out of date: {} texts differ: {:?}. Run `cargo xtask bless`",
            changed.len(),
            &changed[..changed.len().min(8)]
        );
    }
}

#[test]
fn wrong_entries_of_the_lock_are_found() {
    let Some(ptxas) = tool("ptxas") else { return println!("skipped: without an assembler") };
    let (all, version) = (Source::all(), version(&ptxas));
    let source = &all[0];
    let assembly = |lock| Assembly { ptxas: Some(ptxas.clone()), lock, filter: String::new(), sample: Some(0) };
    let assemble = |lock| assembly(lock).assemble_source(0, source);
    let (mut right, mut wrong_count) = (Lock::empty(&version), Lock::empty(&version));
    for (text, resources) in assemble(Lock::empty(&version)).expect("the kernel assembles") {
        right.insert(text, resources);
    }
    // A count that the assembler does not give.
    for (text, resources) in assemble(Lock::empty(&version)).expect("the kernel assembles") {
        let more = resources.map(|counts| Resources { registers: counts.registers + 1, ..counts });
        wrong_count.insert(text, more);
    }
    let why = assemble(wrong_count).err().unwrap_or_default();
    assert!(why.contains("assembled.lock has"), "{why}");
    // Keys of another assembler: no result is taken from them, and they are out of date.
    let mut wrong_key = Lock::empty("another");
    for job in source.jobs("").expect("the kernel is printed") {
        let counts = right.get(&right.text_of(&job));
        assert!(counts.is_some() && wrong_key.get(&right.text_of(&job)).is_none());
        wrong_key.insert(wrong_key.text_of(&job), counts);
        assert!(wrong_key.get(&right.text_of(&job)).is_none());
    }
    assert!(!right.differences(&wrong_key).is_empty());
}
