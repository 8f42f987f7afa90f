//! What traces say of the plain kernels, against what is known of them.

mod launch;
mod serve;
mod trace;
