//! NVIDIA GPUs through the CUDA driver API.
//!
//! This module opens the driver library, loads a printed [`Image`](tegula_ir::ptx::Image) as a
//! [`Function`], owns GPU memory and queues launches. It treats images as opaque; only `product`,
//! which binds kernels to the driver, depends on the intermediate representation.
//!
//! **Order.** All work is queued on the stream of a [`Gpu`] handle. The host waits only for results
//! that are copied back. cudarc's own memory type records events for each use, so that any stream
//! may use it at any time. Memory allocated here has a *home stream* instead, that of the handle
//! which allocated it. Work on another stream must be ordered with it by events, through
//! [`Gpu::submit_in_order`]. On a single stream that costs nothing. Memory borrowed from cudarc
//! follows cudarc's protocol while it is borrowed ([`Gpu::borrow`]).
//!
//! **Missing driver.** The driver library is opened at the first use. Where it is missing, lacks a
//! function or fails to initialize, every call returns [`Error::NoDriver`](crate::Error::NoDriver)
//! with the reason.
#![allow(unsafe_code)]

mod assemble;
mod cache;
mod device_element;
mod driver;
mod event;
mod external_memory;
mod foreign;
mod function;
mod gpu;
mod graph;
mod launch;
mod library;
mod load;
mod memory;
mod product;
mod staging;
mod tensor_map;
mod workspace;
mod workspace_pool;

pub use cache::cache_directory;
/// The crate whose contexts, streams and slices are accepted here.
pub use cudarc;
pub use device_element::DeviceElement;
pub use driver::{DeviceInfo, devices, driver_version};
pub use event::Event;
pub use external_memory::{Borrowed, BorrowedMut};
#[doc(hidden)]
pub use foreign::{ForeignLaunch, ForeignParam};
pub use function::{Attributes, Function, LoadSource};
pub use gpu::Gpu;
pub(crate) use graph::BesideCaptures;
pub use graph::Graph;
pub use launch::Param;
pub use memory::{Buffer, DeviceMatrix};
pub use product::Arg;
pub(crate) use product::GpuPlan;
pub(crate) use staging::STAGING_BYTES;
