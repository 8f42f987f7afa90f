//! The product on the CPU, and the vector instructions it rests on.
#![allow(unsafe_code)]

pub mod lanes;
