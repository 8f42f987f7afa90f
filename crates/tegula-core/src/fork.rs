//! Whether this process is a fork of one that had threads.
//!
//! A fork copies only the thread that calls it. A handler in the child sets a flag, since asking
//! for the process number at every product would be a system call.

use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked since the first call of this function.
pub fn is_fork() -> bool {
    #[cfg(all(unix, not(miri)))]
    {
        static REGISTERED: std::sync::Once = std::sync::Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: the handler is a function of the program, and only sets a flag. Where the
            // system has no memory for it, forks go unnoticed.
            _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
    }
    FORKED.load(Ordering::Relaxed)
}

#[cfg(all(unix, not(miri)))]
unsafe extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}
