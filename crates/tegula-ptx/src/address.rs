//! Addresses: the windows of the generic address space, and the allocation of an address.
//!
//! Allocations of global memory begin 2⁴⁰ bytes apart. So an out-of-bounds address is in no other
//! allocation, and the nearest allocation is the intended one. A shared-memory address has the
//! number of its symbol in the bits above its offset. So an index past the end of one array is out
//! of bounds, not in the next array. Offsets, and therefore banks, are those of the hardware.

use crate::ast::StateSpace;

/// The distance between two allocations, and the size of a window, is 2 to this power.
const STRIDE_BITS: u32 = 40;
/// Index of the window of the first allocation.
const FIRST_ALLOCATION: u64 = 16;
/// Bits of an offset in shared memory; the higher bits are the number of the symbol.
const SHARED_OFFSET_BITS: u32 = 20;

/// First generic address of the window of shared memory.
pub(crate) const SHARED_WINDOW: u64 = 1 << STRIDE_BITS;
/// First generic address of the window of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 2 << STRIDE_BITS;
/// First generic address of the window of kernel parameters.
pub(crate) const PARAM_WINDOW: u64 = 3 << STRIDE_BITS;
/// Address of function 0; functions are 16 bytes apart.
pub(crate) const FUNCTION_WINDOW: u64 = 4 << STRIDE_BITS;

/// The memory and the offset in bytes that an address refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// An offset in an allocation of global memory; negative or too large if out of bounds.
    Global { allocation: u32, offset: i64 },
    /// An offset in the shared memory of the block, and the symbol that the address was made from.
    Shared { symbol: u32, offset: u32 },
    /// An offset in the local memory of the thread.
    Local { offset: i64 },
    /// An offset in the parameters of the kernel.
    Param { offset: i64 },
    /// An address in no window.
    Nowhere(u64),
}

/// First generic address of a state space; 0 if its addresses are generic ones.
pub(crate) fn window(space: StateSpace) -> u64 {
    match space {
        StateSpace::Shared => SHARED_WINDOW,
        StateSpace::Local => LOCAL_WINDOW,
        StateSpace::Param => PARAM_WINDOW,
        StateSpace::Global | StateSpace::Const | StateSpace::Register => 0,
    }
}

/// The address of the first byte of an allocation.
pub(crate) fn allocation_address(allocation: u32) -> u64 {
    (u64::from(allocation) + FIRST_ALLOCATION) << STRIDE_BITS
}

/// The shared-memory address of a symbol; `offset` is from the start of shared memory.
pub(crate) fn shared_address(symbol: u32, offset: u32) -> u64 {
    u64::from(symbol) << SHARED_OFFSET_BITS | u64::from(offset)
}

/// The location of an address in a state space (`None`: generic), with `allocations` allocations.
pub(crate) fn locate(space: Option<StateSpace>, address: u64, allocations: u32) -> Location {
    match space {
        Some(StateSpace::Shared) => shared(address),
        Some(StateSpace::Local) => Location::Local { offset: address as i64 },
        Some(StateSpace::Param) => Location::Param { offset: address as i64 },
        _ => generic(address, allocations),
    }
}

fn shared(address: u64) -> Location {
    let address = address as u32;
    Location::Shared { symbol: address >> SHARED_OFFSET_BITS, offset: address & ((1 << SHARED_OFFSET_BITS) - 1) }
}

fn generic(address: u64, allocations: u32) -> Location {
    // An address up to half a window before a window is a negative offset in that window.
    let nearest = (address >> (STRIDE_BITS - 1)).wrapping_add(1) >> 1;
    let offset = address.wrapping_sub(nearest << STRIDE_BITS) as i64;
    if address >> STRIDE_BITS == SHARED_WINDOW >> STRIDE_BITS {
        return shared(address);
    }
    match nearest << STRIDE_BITS {
        LOCAL_WINDOW => Location::Local { offset },
        PARAM_WINDOW => Location::Param { offset },
        _ if nearest >= FIRST_ALLOCATION && nearest - FIRST_ALLOCATION < u64::from(allocations) => {
            Location::Global { allocation: (nearest - FIRST_ALLOCATION) as u32, offset }
        }
        // Up to 1.5 windows below the first allocation: a negative offset in it.
        _ if allocations > 0 && nearest + 1 == FIRST_ALLOCATION => {
            Location::Global { allocation: 0, offset: address.wrapping_sub(allocation_address(0)) as i64 }
        }
        _ => Location::Nowhere(address),
    }
}

/// Whether a generic address is in a space.
pub(crate) fn is_in(space: StateSpace, address: u64) -> bool {
    let window_of = address >> STRIDE_BITS;
    match space {
        StateSpace::Shared | StateSpace::Local | StateSpace::Param => window_of == window(space) >> STRIDE_BITS,
        StateSpace::Global => window_of >= FIRST_ALLOCATION,
        StateSpace::Const | StateSpace::Register => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_an_allocation_is_located_with_its_offset() {
        for offset in [-4096i64, -4, 0, 4, 1 << 30] {
            let address = allocation_address(2).wrapping_add_signed(offset);
            assert_eq!(locate(None, address, 3), Location::Global { allocation: 2, offset });
        }
        assert_eq!(locate(None, 64, 3), Location::Nowhere(64));
        assert_eq!(locate(None, allocation_address(3), 3), Location::Nowhere(allocation_address(3)));
    }

    #[test]
    fn address_in_shared_memory_keeps_its_symbol() {
        let address = shared_address(5, 1024);
        assert_eq!(locate(Some(StateSpace::Shared), address + 4, 0), Location::Shared { symbol: 5, offset: 1028 });
        assert_eq!(locate(None, SHARED_WINDOW + address, 0), Location::Shared { symbol: 5, offset: 1024 });
        assert!(is_in(StateSpace::Shared, SHARED_WINDOW + address) && !is_in(StateSpace::Global, SHARED_WINDOW));
    }
}
