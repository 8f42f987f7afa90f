//! Signals that ask the process to end while a file is being written: the write is told, and only then they have their way.
//!
//! Handlers are installed at the first write, for those of SIGINT, SIGTERM, SIGHUP and SIGXFSZ that the process leaves as the system
//! has them; what it ignores or handles itself stays so. While nothing is written they do what the system does by default.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

static WRITERS: Mutex<usize> = Mutex::new(0);
static IDLE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));
/// The signal that came during a write, or 0.
static PENDING: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// As long as this lives, signals are kept; then the one that came ends the process.
pub(crate) struct Kept(());

impl Kept {
    pub fn new() -> Kept {
        static ONCE: Once = Once::new();
        ONCE.call_once(install);
        count_writers(|count| count + 1);
        Kept(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        count_writers(|count| count - 1);
        if IDLE.load(Ordering::SeqCst) && pending() {
            let signal = PENDING.swap(0, Ordering::SeqCst);
            let _ = low_level::emulate_default_handler(signal as i32);
        }
    }
}

/// Whether a signal waits for the write to stop.
pub(crate) fn pending() -> bool {
    PENDING.load(Ordering::SeqCst) != 0
}

fn count_writers(change: impl FnOnce(usize) -> usize) {
    let mut count = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    *count = change(*count);
    IDLE.store(*count == 0, Ordering::SeqCst);
}

/// Where a handler cannot be installed, a signal does what it does by default.
fn install() {
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGXFSZ].into_iter().filter(|&signal| is_default(signal)) {
        // Beyond the limit on a file's size, writing then fails with an error, which is all that is wanted.
        if signal != SIGXFSZ {
            let _ = flag::register_usize(signal, Arc::clone(&PENDING), signal as usize);
        }
        let _ = flag::register_conditional_default(signal, Arc::clone(&IDLE));
    }
}

/// Whether the process neither ignores nor handles a signal, as far as the system tells: Linux does.
fn is_default(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let masks = status.lines().filter_map(|line| line.strip_prefix("SigIgn:").or_else(|| line.strip_prefix("SigCgt:")));
    let mut masks = masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    masks.all(|mask| mask >> (signal - 1) & 1 == 0)
}
