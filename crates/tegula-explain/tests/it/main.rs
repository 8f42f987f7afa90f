//! What traces say of the plain kernels, against what is known of them.

mod assembled;
mod devices;
mod guide;
mod launch;
mod pipeline;
mod scene;
mod serve;
mod trace;
