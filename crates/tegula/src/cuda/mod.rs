//! NVIDIA GPUs, through the driver and nothing else.
//!
//! This module finds the driver, has a printed [`Image`](tegula_ir::ptx::Image) made into a [`Function`], owns memory on the
//! GPU and queues launches. It knows what an image is, not what the kernel in it means; only `product`,
//! where kernels meet the driver, looks at the intermediate representation.
//!
//! **Order.** Everything is queued on the stream of a [`Gpu`] handle and nothing waits for it, except where results
//! come back to the host. cudarc's own memory type records events for each use so that any stream may use it at any time;
//! memory made here does not. It has a *home*, the stream of the handle that allocated it, and whoever queues work on
//! another stream puts it between two such events with [`Gpu::ordered`]. Where all is on one stream, that costs nothing.
//! Memory borrowed from cudarc follows cudarc's protocol for as long as it is borrowed ([`Gpu::borrow`]).
//!
//! **Missing pieces.** The driver library is opened when it is first asked for. Where it is missing, lacks a function or
//! refuses to start, every call here returns [`Error::NoDriver`](crate::Error::NoDriver) with the reason.
#![allow(unsafe_code)]

mod assemble;
mod cache;
mod driver;
mod event;
mod gpu;
mod graph;
mod image;
mod kept;
mod launch;
mod lend;
mod library;
mod load;
mod memory;
mod product;
mod staging;
mod stored;
mod tensor;
mod workspace;

pub use cache::cache_directory;
/// The crate whose contexts, streams and slices are accepted here.
pub use cudarc;
pub use driver::{DeviceInfo, devices, driver_version};
pub use event::Event;
pub use gpu::Gpu;
pub use graph::Graph;
pub use image::{Attributes, Function, Source};
pub use launch::Param;
pub use lend::{Borrowed, BorrowedMut};
pub use memory::{Buffer, DeviceMatrix};
pub use product::Arg;
pub(crate) use product::Method;
pub(crate) use staging::STAGING_BYTES;
pub use stored::Stored;
