//! What the hand-off of jobs is made of. In its model these are loom's.

pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
pub use std::thread::{Thread, park};
