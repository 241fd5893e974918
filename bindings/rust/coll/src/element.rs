use crate::sys;

/// What can be in a buffer.
///
/// # Safety
/// `TYPE` is the `coll_type` of this layout, and every pattern of bits is a value: received data is not checked.
pub unsafe trait Element: Copy + Send + 'static {
    /// As coll.h calls it.
    const TYPE: sys::coll_type;
}

macro_rules! elements {
    ($($rust:ty => $name:ident),* $(,)?) => { $(unsafe impl Element for $rust { const TYPE: sys::coll_type = sys::$name; })* };
}

elements! {
    i8 => COLL_I8, i16 => COLL_I16, i32 => COLL_I32, i64 => COLL_I64, u8 => COLL_U8, u16 => COLL_U16, u32 => COLL_U32,
    u64 => COLL_U64, f32 => COLL_F32, f64 => COLL_F64, Bool => COLL_BOOL, F16 => COLL_F16, Bf16 => COLL_BF16,
    F8e4m3 => COLL_F8E4M3, F8e5m2 => COLL_F8E5M2, Complex<f32> => COLL_C64, Complex<f64> => COLL_C128,
    Located<f32, i32> => COLL_F32_I32, Located<f64, i32> => COLL_F64_I32, Located<f64, i64> => COLL_F64_I64,
    Located<i32, i32> => COLL_I32_I32, Located<i64, i32> => COLL_I64_I32, Located<i64, i64> => COLL_I64_I64,
}

/// Opaque elements, which are moved and not reduced.
unsafe impl<const N: usize> Element for [u8; N] {
    const TYPE: sys::coll_type = {
        assert!(N > 0 && N < 1 << 30, "an opaque element has 1 to 2^30 - 1 bytes");
        0x4000_0000 | N as sys::coll_type
    };
}

/// A byte; any value except 0 is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bool(pub u8);

impl From<bool> for Bool {
    fn from(value: bool) -> Bool {
        Bool(value.into())
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> bool {
        value.0 != 0
    }
}

macro_rules! floats {
    ($($(#[$doc:meta])* $name:ident($bits:ty): $from:ident, $to:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(pub $bits);

        impl $name {
            /// Rounded to nearest even.
            pub fn from_f32(value: f32) -> $name {
                $name(unsafe { sys::$from(value) })
            }

            /// The same number.
            pub fn to_f32(self) -> f32 {
                unsafe { sys::$to(self.0) }
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> f32 {
                value.to_f32()
            }
        }
    )* };
}

floats! {
    /// The bits of an IEEE 754 binary16; they are compared as bits.
    F16(u16): coll_f32_to_f16, coll_f16_to_f32;
    /// The bits of a bfloat16, the upper half of an f32.
    Bf16(u16): coll_f32_to_bf16, coll_bf16_to_f32;
    /// The bits of an OCP E4M3, which has no infinity.
    F8e4m3(u8): coll_f32_to_f8e4m3, coll_f8e4m3_to_f32;
    /// The bits of an OCP E5M2.
    F8e5m2(u8): coll_f32_to_f8e5m2, coll_f8e5m2_to_f32;
}

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    /// The real part.
    pub re: T,
    /// The imaginary part.
    pub im: T,
}

/// A value and where it is, for [`Op::MinLoc`] and [`Op::MaxLoc`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Located<V, I> {
    /// What is compared.
    pub value: V,
    /// The lower one wins where values are equal.
    pub index: I,
}

/// How elements are reduced.  What is not defined for a type is [`Status::Unsupported`](crate::Status::Unsupported).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Op {
    /// The sum; integers wrap.
    Sum = sys::COLL_SUM,
    /// The product; integers wrap.
    Prod = sys::COLL_PROD,
    /// The lowest; NaN wins.
    Min = sys::COLL_MIN,
    /// The highest; NaN wins.
    Max = sys::COLL_MAX,
    /// The sum, divided by the number of ranks.
    Avg = sys::COLL_AVG,
    /// Bits: and.
    Band = sys::COLL_BAND,
    /// Bits: or.
    Bor = sys::COLL_BOR,
    /// Bits: exclusive or.
    Bxor = sys::COLL_BXOR,
    /// Truth: all.
    Land = sys::COLL_LAND,
    /// Truth: any.
    Lor = sys::COLL_LOR,
    /// Truth: an odd number of them.
    Lxor = sys::COLL_LXOR,
    /// The lowest value and where it is.
    MinLoc = sys::COLL_MINLOC,
    /// The highest value and where it is.
    MaxLoc = sys::COLL_MAXLOC,
}

/// What the messages of a reduction carry, under a type of more bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Wire {
    F32 = sys::COLL_F32,
    F16 = sys::COLL_F16,
    Bf16 = sys::COLL_BF16,
    F8e4m3 = sys::COLL_F8E4M3,
    F8e5m2 = sys::COLL_F8E5M2,
    Mxi8 = sys::COLL_MXI8,
    Mxf8e4m3 = sys::COLL_MXF8E4M3,
    Mxf8e5m2 = sys::COLL_MXF8E5M2,
}
