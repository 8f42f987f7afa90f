//! Every printed kernel is one that NVIDIA's assembler takes without a spill, a stack frame, or a warning that means a slow
//! or wrong kernel.
//!
//! `tests/assembled.lock` keeps what the assembler said of each text. By default only texts that are not kept are assembled,
//! and a few others, chosen at random, to compare; `TEGULA_FULL=1` assembles all and compares. `cargo xtask bless` assembles
//! what is new and writes the file. `TEGULA_ASSEMBLE=PART` restricts a run to kernels with this text in their names.

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

/// The GPU that kernels are measured on.
const MEASURED: &str = "sm_90";
/// One of so many kept answers is compared with the assembler's in each run.
const SAMPLE: usize = 256;

/// What texts come from.
enum Source {
    Kept(String, Box<Kernel>),
    Variant(Variant),
}

impl Source {
    fn all() -> Vec<Source> {
        let kept = kernels::kept().into_iter().map(|(name, kernel)| Source::Kept(name, Box::new(kernel)));
        kept.chain(variants::all().into_iter().map(Source::Variant)).collect()
    }

    fn name(&self) -> String {
        match self {
            Source::Kept(name, _) => name.clone(),
            Source::Variant(variant) => variant.name(),
        }
    }

    /// Its texts with this in their names, for the GPU they name, and for the one that is measured.
    fn jobs(&self, part: &str) -> Result<Vec<Job>, String> {
        let mut jobs = Vec::new();
        let mut add = |name: String, text: String, measured: bool| {
            let target = target(&text);
            if measured && target != MEASURED {
                jobs.push(Job { name: name.clone(), text: text.clone(), target: MEASURED.into() });
            }
            jobs.push(Job { name, text, target });
        };
        match self {
            Source::Kept(name, kernel) => add(name.clone(), variants::print((**kernel).clone())?.text, true),
            Source::Variant(variant) => {
                let text = print(variant.build())?;
                let overlapping = print(variant.build_overlapping())?;
                if text != overlapping {
                    add(format!("{}.overlapping", variant.name()), overlapping, true);
                }
                add(variant.name(), text, variants::measured(variant));
            }
        }
        jobs.retain(|job| job.name.contains(part));
        Ok(jobs)
    }
}

fn print(kernel: tegula::Result<Kernel>) -> Result<String, String> {
    Ok(variants::print(kernel.map_err(|e| e.to_string())?)?.text)
}

/// An assembler, and the answers that are kept.
struct Gate {
    ptxas: Option<PathBuf>,
    kept: Lock,
    /// What the names of kernels have in them that are judged.
    part: String,
    /// Which of the kept answers are compared; none where another assembler gave them.
    sample: Option<usize>,
}

/// A text by its name and key, and what the assembler said of it; nothing where there is none to ask.
type Judged = (Text, Option<Resources>);

impl Gate {
    fn open() -> Gate {
        let kept = Lock::read();
        let ptxas = tool("ptxas");
        let version = ptxas.as_deref().map_or(kept.version.clone(), version);
        let is_kept = version == kept.version;
        // Another assembler is asked about changed texts, and about all where that is asked for.
        let kept = if is_kept || !(full() || bless()) { kept } else { Lock::empty(&version) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_micros());
        let sample = is_kept.then_some(now as usize % SAMPLE);
        let part = env::var("TEGULA_ASSEMBLE").unwrap_or_default();
        Gate { ptxas, kept, part, sample }
    }

    /// Prints the texts of a source, and assembles those that are not kept or are to be compared.
    fn judge(&self, number: usize, source: &Source) -> Result<Vec<Judged>, String> {
        let jobs = source.jobs(&self.part).map_err(|why| format!("{}: {why}", source.name()))?;
        let judge = |job: Job| {
            let text = self.kept.text_of(&job);
            self.resources(number, &job, self.kept.get(&text)).map(|resources| (text, resources))
        };
        jobs.into_iter().map(judge).collect()
    }

    fn resources(&self, number: usize, job: &Job, kept: Option<Resources>) -> Result<Option<Resources>, String> {
        let Some(ptxas) = &self.ptxas else { return Ok(kept) };
        if kept.is_some() && !full() && self.sample != Some(number % SAMPLE) {
            return Ok(kept);
        }
        let folder = tempfile::tempdir().map_err(|e| format!("a temporary folder: {e}"))?;
        let resources = assemble(ptxas, folder.path(), job)?;
        match kept {
            Some(kept) if kept != resources => {
                Err(format!("{} for {} takes {resources:?}; {kept:?} is kept", job.name, job.target))
            }
            _ => Ok(Some(resources)),
        }
    }
}

/// Judges all sources, by as many threads as there are processors.
fn judge_all(gate: &Gate, sources: &[Source]) -> (Vec<Judged>, Vec<String>) {
    let (next, judged, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(source) = sources.get(number) else { return };
            match gate.judge(number, source) {
                Ok(texts) => judged.lock().unwrap().extend(texts),
                Err(why) => failures.lock().unwrap().push(why),
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    (judged.into_inner().unwrap(), failures)
}

#[test]
fn kernels_assemble_without_spills_and_warnings() {
    let gate = Gate::open();
    let (judged, failures) = judge_all(&gate, &Source::all());
    assert!(!judged.is_empty() || !failures.is_empty(), "no kernel has {:?} in its name", gate.part);
    let mut lock = Lock::empty(&gate.kept.version);
    let unknown = judged.iter().filter(|(_, resources)| resources.is_none()).count();
    judged.into_iter().for_each(|(text, resources)| lock.insert(text, resources));
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    if bless() && gate.part.is_empty() && gate.ptxas.is_some() {
        lock.write();
    }
    if gate.ptxas.is_none() {
        return println!("skipped: {unknown} changed texts, without an assembler");
    }
    if gate.part.is_empty() && !bless() && gate.sample.is_some() {
        let changed = lock.beyond(&Lock::read());
        assert!(
            changed.is_empty(),
            "all kernels assemble, but assembled.lock is not of these texts: `cargo xtask bless`. {} differ: {:?}",
            changed.len(),
            &changed[..changed.len().min(8)]
        );
    }
}
