//! Files through the library and the example `convert`: formats, faults, and files of others.

mod array_paths;
mod atomic_replace;
mod common;
mod faults;
mod malformed;
mod round_trip;
mod text;
mod truncated_map;
