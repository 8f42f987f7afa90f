//! What traces say of the plain kernels, against what is known of them.

mod assembled;
mod devices;
mod guide;
mod launch;
mod pipeline;
mod scene;
mod serve;
mod trace;

/// Whether everything is asked for, and not only what each change is held to.
fn full() -> bool {
    std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1")
}
