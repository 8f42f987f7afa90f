//! Each kernel family of the registry, in the interpreter: every kernel name computes the correct
//! product without a race.

use tegula::Device;
use tegula::element::with_operand_type;
use tegula_kernels::plan::Recipe;
use tegula_kernels::registry::FAMILIES;
use tegula_kernels::{GemmKernel, GemmVariant, KernelName, NameSyntax};

use super::effort::full;
use super::product::{Product, Sample};

/// Kernels of a name. For a parameter syntax, the smallest tile by default, all in the full run.
fn kernels(name: &KernelName, listed: &[String]) -> Vec<GemmKernel> {
    let named = |name: &str, ty| GemmKernel::named(name, ty).unwrap_or_else(|e| panic!("{name}: {e}"));
    if name.syntax != NameSyntax::Parameters {
        return vec![named(name.name, name.ty)];
    }
    let listed = listed.iter().filter(|kernel| name.matches(kernel));
    let mut kernels: Vec<_> = listed.map(|kernel| named(kernel, name.ty)).collect();
    kernels.sort_by_key(|kernel| kernel.tile().iter().product::<u32>());
    kernels.truncate(if full() { usize::MAX } else { 1 });
    kernels
}

fn check_product<T: Sample>(kernel: GemmKernel, [m, n, k]: [usize; 3]) {
    let accuracy = kernel.accuracy();
    Product::<T>::plain(m, n, k).run_recipe_at(&Device::interp(), Recipe::from(kernel), accuracy);
}

#[test]
fn every_kernel_name_computes_the_product() {
    for name in FAMILIES.iter().flat_map(|family| family.names.iter().map(move |name| (family, name))) {
        let (family, name) = name;
        let kernels = kernels(name, &(family.listed)(name.ty));
        assert!(!kernels.is_empty(), "{}: no kernel has this name", name.name);
        for kernel in kernels {
            let sizes = match name.syntax {
                NameSyntax::Options { side, .. } => [side; 3],
                NameSyntax::Parameters | NameSyntax::Helper => kernel.check_size(),
            };
            let sizes = sizes.map(|size| size as usize);
            with_operand_type!(name.ty, T => check_product::<T>(kernel, sizes), ty => panic!("no products of {ty}"));
        }
    }
}
