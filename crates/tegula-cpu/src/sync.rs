//! Atomics and threads that `hand_off` uses. `hand_off_model` replaces them by loom's.

pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
pub use std::thread::{Thread, park};
