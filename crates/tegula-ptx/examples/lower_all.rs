//! Parses PTX files and lowers every kernel: `lower_all FILE…`. Prints unsupported constructs.

use tegula_ptx::Module;

fn main() {
    let (mut kernels, mut failed) = (0, 0);
    for path in std::env::args().skip(1) {
        let Ok(text) = std::fs::read_to_string(&path) else {
            println!("{path}: cannot be read");
            continue;
        };
        match Module::parse(&text) {
            Err(error) => {
                failed += 1;
                println!("{path}: {error}");
            }
            Ok(module) => {
                for name in module.kernels() {
                    kernels += 1;
                    if let Err(error) = module.kernel(name) {
                        failed += 1;
                        println!("{path}: {name}: {error}");
                    }
                }
            }
        }
    }
    println!("{kernels} kernels, {failed} failures");
}
