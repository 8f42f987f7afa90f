//! Arithmetic instructions that compilers emit, as opcode and modifiers: NVRTC for `sm_75` to
//! `sm_120a`, with and without fast math, and Tegula's own printer.

/// Spellings by their number of source operands.
pub(super) const COMPILED: &[(usize, &str)] = &[
    (
        1,
        "abs.bf16 abs.bf16x2 abs.f16 abs.f16x2 abs.f32 abs.f64 abs.ftz.f32 abs.s32 abs.s64 bfind.shiftamt.u32 \
         brev.b32 brev.b64 clz.b32 clz.b64 cos.approx.f32 cos.approx.ftz.f32 cvt.f32.bf16 cvt.f32.f16 cvt.f64.f16 \
         cvt.f64.f32 cvt.ftz.f64.f32 cvt.ftz.sat.f32.f32 cvt.rm.f16.s64 cvt.rm.f32.s32 cvt.rm.f32.s64 cvt.rm.f32.u32 \
         cvt.rmi.f16.f16 cvt.rmi.f32.f32 cvt.rmi.f64.f64 cvt.rmi.ftz.f32.f32 cvt.rmi.s32.f64 cvt.rn.bf16.f32 \
         cvt.rn.bf16.f64 cvt.rn.bf16.s32 cvt.rn.bf16.s64 cvt.rn.bf16.u32 cvt.rn.bf16.u64 cvt.rn.f16.f32 \
         cvt.rn.f16.f64 cvt.rn.f16.s32 cvt.rn.f16.s64 cvt.rn.f16.u16 cvt.rn.f16.u32 cvt.rn.f16.u64 \
         cvt.rn.f16x2.e4m3x2 cvt.rn.f16x2.e5m2x2 cvt.rn.f32.f64 cvt.rn.f32.s16 cvt.rn.f32.s32 cvt.rn.f32.s64 \
         cvt.rn.f32.u16 cvt.rn.f32.u32 cvt.rn.f32.u64 cvt.rn.f64.s32 cvt.rn.f64.s64 cvt.rn.f64.u32 cvt.rn.f64.u64 \
         cvt.rn.ftz.f32.f64 cvt.rn.satfinite.e4m3x2.f16x2 cvt.rna.tf32.f32 cvt.rni.bf16.bf16 cvt.rni.f16.f16 \
         cvt.rni.f32.f32 cvt.rni.f64.f64 cvt.rni.ftz.s32.f32 cvt.rni.ftz.s64.f32 cvt.rni.s32.f32 cvt.rni.s32.f64 \
         cvt.rni.s64.f32 cvt.rni.s64.f64 cvt.rp.bf16.f32 cvt.rp.f32.s32 cvt.rp.f32.s64 cvt.rpi.bf16.bf16 \
         cvt.rpi.f32.f32 cvt.rpi.f64.f64 cvt.rpi.ftz.f32.f32 cvt.rpi.ftz.u32.f32 cvt.rpi.u32.f32 cvt.rpi.u64.f64 \
         cvt.rz.bf16.f32 cvt.rz.f16.f32 cvt.rz.f32.f64 cvt.rz.f32.s32 cvt.rz.f32.s64 cvt.rz.f64.s64 \
         cvt.rz.ftz.f32.f64 cvt.rzi.f16.f16 cvt.rzi.f32.f32 cvt.rzi.f64.f64 cvt.rzi.ftz.s32.f32 cvt.rzi.ftz.u32.f32 \
         cvt.rzi.s32.bf16 cvt.rzi.s32.f16 cvt.rzi.s32.f32 cvt.rzi.s32.f64 cvt.rzi.s64.f16 cvt.rzi.s64.f32 \
         cvt.rzi.s64.f64 cvt.rzi.s8.f16 cvt.rzi.s8.f32 cvt.rzi.s8.f64 cvt.rzi.u32.f16 cvt.rzi.u32.f32 cvt.rzi.u32.f64 \
         cvt.rzi.u64.f16 cvt.rzi.u64.f32 cvt.rzi.u64.f64 cvt.rzi.u8.f16 cvt.rzi.u8.f32 cvt.rzi.u8.f64 cvt.s32.s16 \
         cvt.s32.s64 cvt.s32.s8 cvt.s32.u64 cvt.s64.s32 cvt.s64.u32 cvt.sat.f32.f32 cvt.u16.u32 cvt.u16.u64 \
         cvt.u32.s64 cvt.u32.u16 cvt.u32.u64 cvt.u32.u8 cvt.u64.s32 cvt.u64.u32 ex2.approx.f32 ex2.approx.ftz.f32 \
         lg2.approx.f32 lg2.approx.ftz.f32 mov.b16 mov.b32 mov.b64 mov.f32 mov.f64 mov.pred mov.u16 mov.u32 mov.u64 \
         neg.bf16x2 neg.f16x2 neg.f32 neg.f64 neg.ftz.f32 neg.s32 neg.s64 not.b16 not.b32 not.b64 not.pred popc.b32 \
         popc.b64 rcp.approx.f32 rcp.approx.ftz.f32 rcp.approx.ftz.f64 rcp.rn.f32 rcp.rn.f64 rcp.rz.f32 rcp.rz.f64 \
         rcp.rz.ftz.f32 rsqrt.approx.f32 rsqrt.approx.f64 rsqrt.approx.ftz.f32 rsqrt.approx.ftz.f64 sin.approx.f32 \
         sin.approx.ftz.f32 sqrt.approx.f32 sqrt.approx.ftz.f32 sqrt.rn.f32 sqrt.rn.f64 sqrt.rp.f32 sqrt.rp.f64 \
         sqrt.rp.ftz.f32 tanh.approx.bf16 tanh.approx.f16 tanh.approx.f16x2 tanh.approx.f32",
    ),
    (
        2,
        "add.bf16 add.bf16x2 add.cc.s64 add.cc.u32 add.f16 add.f16x2 add.f32 add.f64 add.ftz.f32 add.rn.bf16 \
         add.rn.f16 add.rn.f32 add.rn.f64 add.rn.ftz.f32 add.rz.f32 add.rz.f64 add.rz.ftz.f32 add.s16 add.s32 add.s64 \
         add.sat.f16 add.sat.f16x2 add.u16x2 add.u32 add.u64 addc.cc.s64 addc.cc.u32 addc.u32 and.b16 and.b32 and.b64 \
         and.pred copysign.f32 copysign.f64 cvt.rn.bf16x2.f32 cvt.rn.f16x2.f32 cvt.rn.satfinite.e2m1x2.f32 \
         cvt.rn.satfinite.e2m3x2.f32 cvt.rn.satfinite.e3m2x2.f32 cvt.rn.satfinite.e4m3x2.f32 \
         cvt.rn.satfinite.e5m2x2.f32 cvt.rp.satfinite.ue8m0x2.f32 div.approx.f32 div.approx.ftz.f32 div.full.f32 \
         div.rm.f32 div.rm.f64 div.rm.ftz.f32 div.rn.f32 div.rn.f64 div.rn.ftz.f32 div.s32 div.s64 div.u16 div.u32 \
         div.u64 max.NaN.bf16 max.NaN.bf16x2 max.NaN.f16 max.NaN.f16x2 max.bf16 max.f16 max.f32 max.f64 max.ftz.f32 \
         max.s32 max.s64 max.u16 max.u32 max.u64 min.bf16 min.bf16x2 min.f16 min.f16x2 min.f32 min.f64 min.ftz.f32 \
         min.s16x2.relu min.s32 min.s64 min.u32 min.u64 mul.bf16 mul.bf16x2 mul.f16 mul.f16x2 mul.f32 mul.f64 \
         mul.ftz.f32 mul.hi.s32 mul.hi.s64 mul.hi.u32 mul.hi.u64 mul.lo.s32 mul.lo.s64 mul.lo.u32 mul.lo.u64 \
         mul.rm.f32 mul.rm.f64 mul.rm.ftz.f32 mul.rn.bf16 mul.rn.f16 mul.rn.f32 mul.rn.f64 mul.rn.ftz.f32 \
         mul.wide.s16 mul.wide.s32 mul.wide.u16 mul.wide.u32 or.b16 or.b32 or.b64 or.pred rem.s32 rem.s64 rem.u16 \
         rem.u32 rem.u64 set.eq.f16.f16 set.eq.f16x2.f16x2 set.equ.bf16x2.bf16x2 set.equ.f16x2.f16x2 set.equ.f32.f32 \
         set.gt.bf16x2.bf16x2 set.gt.f16x2.f16x2 set.gt.f32.f32 set.gt.u32.f16x2 set.nan.bf16.bf16 set.nan.f16.f16 \
         set.nan.f32.f32 setp.eq.b16 setp.eq.b32 setp.eq.b64 setp.eq.f16 setp.eq.f32 setp.eq.f64 setp.eq.ftz.f32 \
         setp.eq.s16 setp.eq.s32 setp.eq.s64 setp.eq.u32 setp.eq.u64 setp.equ.f64 setp.ge.f16 setp.ge.f32 setp.ge.f64 \
         setp.ge.ftz.f32 setp.ge.s32 setp.ge.s64 setp.ge.u32 setp.ge.u64 setp.geu.f32 setp.geu.ftz.f32 setp.gt.bf16 \
         setp.gt.f16 setp.gt.f32 setp.gt.f64 setp.gt.ftz.f32 setp.gt.s32 setp.gt.s64 setp.gt.u16 setp.gt.u32 \
         setp.gt.u64 setp.gtu.f32 setp.gtu.f64 setp.gtu.ftz.f32 setp.le.f16 setp.le.f32 setp.le.f64 setp.le.ftz.f32 \
         setp.le.s32 setp.le.s64 setp.le.u32 setp.le.u64 setp.leu.f32 setp.leu.f64 setp.leu.ftz.f32 setp.lt.f16 \
         setp.lt.f32 setp.lt.f64 setp.lt.ftz.f32 setp.lt.s16 setp.lt.s32 setp.lt.s64 setp.lt.u16 setp.lt.u32 \
         setp.lt.u64 setp.ltu.f16 setp.ltu.f32 setp.ltu.f64 setp.ltu.ftz.f32 setp.nan.f32 setp.nan.f64 \
         setp.nan.ftz.f32 setp.ne.b16 setp.ne.b32 setp.ne.b64 setp.ne.f64 setp.ne.s16 setp.ne.s32 setp.ne.s64 \
         setp.ne.u32 setp.ne.u64 setp.neu.f16 setp.neu.f32 setp.neu.f64 setp.neu.ftz.f32 setp.num.f32 setp.num.f64 \
         setp.num.ftz.f32 shl.b16 shl.b32 shl.b64 shr.b64 shr.s32 shr.s64 shr.u16 shr.u32 shr.u64 sub.bf16 sub.bf16x2 \
         sub.cc.s64 sub.cc.u32 sub.f16 sub.f16x2 sub.f32 sub.f64 sub.ftz.f32 sub.rm.f32 sub.rm.ftz.f32 sub.rn.bf16 \
         sub.rn.f16 sub.rn.f32 sub.rn.f64 sub.rn.ftz.f32 sub.s16 sub.s32 sub.s64 sub.u32 sub.u64 subc.cc.s64 \
         subc.cc.u32 subc.u32 xor.b16 xor.b32 xor.b64 xor.pred",
    ),
    (
        3,
        "bfe.s32 bfe.u32 dp2a.hi.u32.u32 dp2a.lo.s32.s32 dp4a.s32.s32 dp4a.u32.u32 fma.rm.f32 fma.rn.bf16 \
         fma.rn.bf16x2 fma.rn.f16 fma.rn.f16x2 fma.rn.f32 fma.rn.f64 fma.rn.ftz.f32 fma.rn.relu.bf16x2 \
         fma.rn.relu.f16x2 fma.rn.sat.f16x2 fma.rp.f32 fma.rp.f64 fma.rp.ftz.f32 fma.rz.f32 fma.rz.ftz.f32 fns.b32 \
         mad.hi.cc.u32 mad.hi.u32 mad.lo.cc.u32 mad.lo.s32 mad.lo.s64 mad.lo.u32 mad.lo.u64 mad.wide.s32 mad.wide.u32 \
         madc.hi.cc.u32 madc.hi.u32 madc.lo.cc.u32 prmt.b32 sad.s32 sad.u32 selp.b16 selp.b32 selp.b64 selp.f32 \
         selp.f64 selp.s16 selp.s32 selp.u16 selp.u32 selp.u64 setp.gt.and.u32 shf.l.wrap.b32 shf.r.clamp.b32",
    ),
    (4, "bfi.b64 lop3.b32"),
];
