//! Special registers, by their names in PTX.

use crate::program::{LaneMask, Special};

/// The special register of a name such as `%tid.x`; `None` if it is not supported.
pub(crate) fn special(name: &str) -> Option<Special> {
    let axis = |rest: &str| "xyzw".find(rest).filter(|_| rest.len() == 1);
    let (base, rest) = name.split_once('.').unwrap_or((name, ""));
    if let Some(axis) = axis(rest) {
        return Some(match base {
            _ if axis == 3 => Special::Constant(0),
            "%tid" => Special::Tid(axis),
            "%ntid" => Special::NTid(axis),
            "%ctaid" => Special::CtaId(axis),
            "%nctaid" => Special::NCtaId(axis),
            "%clusterid" => Special::CtaId(axis),
            "%nclusterid" => Special::NCtaId(axis),
            "%cluster_ctaid" => Special::Constant(0),
            "%cluster_nctaid" => Special::Constant(1),
            _ => return None,
        });
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::NWarp,
        "%smid" => Special::SmId,
        "%nsmid" => Special::NSmId,
        "%gridid" => Special::GridId,
        "%lanemask_eq" => Special::LaneMask(LaneMask::Eq),
        "%lanemask_lt" => Special::LaneMask(LaneMask::Lt),
        "%lanemask_le" => Special::LaneMask(LaneMask::Le),
        "%lanemask_gt" => Special::LaneMask(LaneMask::Gt),
        "%lanemask_ge" => Special::LaneMask(LaneMask::Ge),
        "%clock" | "%clock64" | "%clock_hi" => Special::Clock,
        "%globaltimer" | "%globaltimer_lo" | "%globaltimer_hi" => Special::GlobalTimer,
        "%dynamic_smem_size" => Special::DynamicSharedBytes,
        "%total_smem_size" | "%aggr_smem_size" => Special::TotalSharedBytes,
        "%is_explicit_cluster" | "%cluster_ctarank" => Special::Constant(0),
        "%cluster_nctarank" => Special::Constant(1),
        _ if name.starts_with("%envreg") || name.starts_with("%reserved_smem_offset") => Special::Constant(0),
        _ => return None,
    })
}
