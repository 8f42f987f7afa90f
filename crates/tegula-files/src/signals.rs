//! Termination signals, deferred while a file is written.
//!
//! Handlers are installed at the first write, for those of SIGINT, SIGTERM, SIGHUP and SIGXFSZ with
//! the default disposition. Signals that the process ignores or handles stay so. Without a write in
//! progress, signals have their default effect.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

static WRITERS: Mutex<usize> = Mutex::new(0);
static IDLE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));
/// Signal received during a write, or 0.
static PENDING: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Guard that defers signals; when dropped, a pending signal terminates the process.
pub(crate) struct DeferredSignals(());

impl DeferredSignals {
    pub fn new() -> DeferredSignals {
        static ONCE: Once = Once::new();
        ONCE.call_once(install);
        count_writers(|count| count + 1);
        DeferredSignals(())
    }
}

impl Drop for DeferredSignals {
    fn drop(&mut self) {
        count_writers(|count| count - 1);
        if IDLE.load(Ordering::SeqCst) && pending() {
            let signal = PENDING.swap(0, Ordering::SeqCst);
            let _ = low_level::emulate_default_handler(signal as i32);
        }
    }
}

/// Whether a pending signal requests that the write stop.
pub(crate) fn pending() -> bool {
    PENDING.load(Ordering::SeqCst) != 0
}

fn count_writers(change: impl FnOnce(usize) -> usize) {
    let mut count = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    *count = change(*count);
    IDLE.store(*count == 0, Ordering::SeqCst);
}

/// Installs the handlers. If that fails, a signal has its default effect.
fn install() {
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGXFSZ].into_iter().filter(|&signal| is_default(signal)) {
        // Beyond the file size limit the write then fails with an error, as required.
        if signal != SIGXFSZ {
            let _ = flag::register_usize(signal, Arc::clone(&PENDING), signal as usize);
        }
        let _ = flag::register_conditional_default(signal, Arc::clone(&IDLE));
    }
}

/// Whether the process neither ignores nor handles a signal.
///
/// Based on procfs: without it, the signal counts as default.
fn is_default(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let masks = status.lines().filter_map(|line| line.strip_prefix("SigIgn:").or_else(|| line.strip_prefix("SigCgt:")));
    let mut masks = masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    masks.all(|mask| mask >> (signal - 1) & 1 == 0)
}
