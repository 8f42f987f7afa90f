//! A forked process multiplies without the threads of its parent, which it does not have.
//!
//! In a process of its own, since rayon's pool is created once, and a fork copies no other thread.
#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use tegula::{Matrix, Shape, matmul};
use tegula_core::threads;

/// Products on all threads, and of a batch of small matrices.
fn products() -> Vec<f32> {
    let a = Matrix::from_fn(300, 300, |i, j| (i * 3 + j) as f32 % 7.0 - 3.0).unwrap();
    let shape = Shape { batches: 300, rows: 20, cols: 20 };
    let batch = Matrix::from_shape_fn(shape, |b, i, j| ((b + i * j) % 5) as f32).unwrap();
    let (large, small) = (matmul(&a, &a).unwrap(), matmul(&batch, &batch).unwrap());
    [large.as_slice(), small.as_slice()].concat()
}

/// Whether the products of a forked process are `expected`. It is killed if it hangs.
fn check_in_child(expected: &[f32]) {
    // SAFETY: no other thread holds a lock that the child needs: those of the pool are idle, and
    // the C library's allocator is consistent after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let right = threads::count() == 1 && products() == expected;
        // SAFETY: ends the child, without the test harness.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    assert!(child > 0, "fork failed");
    let (start, mut status) = (Instant::now(), -1);
    // SAFETY: the child is this process's, and the status can be written.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > Duration::from_secs(60) {
            // SAFETY: as above.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(status, 0, "the child failed, or its products differ");
}

#[test]
fn forked_process_multiplies_on_one_thread() {
    // More threads than a small machine has processors, made by the program before any product.
    rayon::ThreadPoolBuilder::new().num_threads(3).build_global().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let expected = pool.install(products);
    check_in_child(&expected);
    assert_eq!(threads::count(), 3);
    assert_eq!(products(), expected);
    check_in_child(&expected);
    assert_eq!(products(), expected);
    // The child is a copy of the pool's thread, but the only one.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    pool.install(|| check_in_child(&expected));
}
