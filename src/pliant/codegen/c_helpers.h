/* Functions that generated C code calls. Only those that a program uses are copied into it, in this order.

   A section begins with a line `//: NAME` or `//: NAME for TYPES`. The second kind is a template, copied once for each type that is used,
   with $WORD replaced by the value in that type's line `//= TYPE WORD=VALUE...`, and $t by the type's name:

   T, U, W     the C type, the unsigned type that its arithmetic is done in, and the unsigned type of its width; B its bits
   LIMIT       the least power of two above MAX
   D, E        bits of a float's fraction and exponent; MAGIC is 2^D
   SSE, ARM, VFP, REG, CON      how instructions of x86, 64-bit ARM and 32-bit ARM spell the type
   S, N, MASK, TOP              of a storage type: bits, elements in a byte, the code's bits, the bit of its sign
   BIAS, LEAST, ROUND, SCALE    of a small float: its exponent's bias, least normal number, and what rounding adds
   LARGE, NAN                   the codes that overflow and NaN give; INFINITE: from LARGE on codes are infinity and NaN;
                                NANSIZE: NAN without its sign is NaN; NOMINUS: NAN is the code that -0.0 would have */

//= i8 T=int8_t U=uint32_t W=uint8_t B=8 MIN=INT8_MIN MAX=INT8_MAX LIMIT=0x1p7
//= i16 T=int16_t U=uint32_t W=uint16_t B=16 MIN=INT16_MIN MAX=INT16_MAX LIMIT=0x1p15
//= i32 T=int32_t U=uint32_t W=uint32_t B=32 MIN=INT32_MIN MAX=INT32_MAX LIMIT=0x1p31
//= i64 T=int64_t U=uint64_t W=uint64_t B=64 MIN=INT64_MIN MAX=INT64_MAX LIMIT=0x1p63
//= u8 T=uint8_t U=uint32_t W=uint8_t B=8 MIN=0 MAX=UINT8_MAX LIMIT=0x1p8
//= u16 T=uint16_t U=uint32_t W=uint16_t B=16 MIN=0 MAX=UINT16_MAX LIMIT=0x1p16
//= u32 T=uint32_t U=uint32_t W=uint32_t B=32 MIN=0 MAX=UINT32_MAX LIMIT=0x1p32
//= u64 T=uint64_t U=uint64_t W=uint64_t B=64 MIN=0 MAX=UINT64_MAX LIMIT=0x1p64
//= bool T=bool
//= f16 T=uint16_t
//= bf16 T=uint16_t
//= f32 T=float W=uint32_t B=32 D=23 E=8 MAGIC=0x1p23f SSE=ss ARM=s VFP=4 REG= CON=t
//= f64 T=double W=uint64_t B=64 D=52 E=11 MAGIC=0x1p52 SSE=sd ARM=d VFP=8 REG=P CON=w
//= i4 S=4 N=2 MASK=15u TOP=8
//= u4 S=4 N=2 MASK=15u TOP=8
//= i2 S=2 N=4 MASK=3u TOP=2
//= u2 S=2 N=4 MASK=3u TOP=2
//= f8e5m2 S=8 N=1 MASK=255u TOP=128 D=2 BIAS=15 LEAST=0x1p-14f ROUND=0xc80fffffu SCALE=0x1p7f LARGE=124u NAN=126u INFINITE=1 NANSIZE=0 NOMINUS=0
//= f8e4m3 S=8 N=1 MASK=255u TOP=128 D=3 BIAS=7 LEAST=0x1p-6f ROUND=0xc407ffffu SCALE=0x1p14f LARGE=120u NAN=124u INFINITE=1 NANSIZE=0 NOMINUS=0
//= f8e4m3fn S=8 N=1 MASK=255u TOP=128 D=3 BIAS=7 LEAST=0x1p-6f ROUND=0xc407ffffu SCALE=0x1p14f LARGE=127u NAN=127u INFINITE=0 NANSIZE=1 NOMINUS=0
//= f4e2m1 S=4 N=2 MASK=15u TOP=8 D=1 BIAS=1 LEAST=0x1p0f ROUND=0xc11fffffu SCALE=0x1p22f LARGE=7u NAN=8u INFINITE=0 NANSIZE=0 NOMINUS=0
//= f8e5m2fnuz S=8 N=1 MASK=255u TOP=128 D=2 BIAS=16 LEAST=0x1p-15f ROUND=0xc88fffffu SCALE=0x1p6f LARGE=128u NAN=128u INFINITE=0 NANSIZE=0 NOMINUS=1
//= f8e4m3fnuz S=8 N=1 MASK=255u TOP=128 D=3 BIAS=8 LEAST=0x1p-7f ROUND=0xc487ffffu SCALE=0x1p13f LARGE=128u NAN=128u INFINITE=0 NANSIZE=0 NOMINUS=1
//= f8e8m0

//: prelude
#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "compile without -ffast-math: results would differ"
#endif
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "this machine computes floats with more digits than they have: results would differ (on x86, -msse2 -mfpmath=sse helps)"
#endif

typedef struct Ctx Ctx;
struct Ctx {
  uint8_t *workspace;
  int64_t workspace_size;
  void *(*alloc)(Ctx *, int64_t);
  int32_t (*parallel_for)(Ctx *, int32_t (*)(Ctx *, void *, int64_t, int64_t), void *, int64_t, int64_t);
  void (*profile)(Ctx *, int64_t, int64_t);
  const volatile int32_t *cancel;
  void *pool;
  int64_t error[8];
};

//: pl_f32_bits
static inline uint32_t pl_f32_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}

//: pl_f64_bits
static inline uint64_t pl_f64_bits(double x) {
  uint64_t u;
  memcpy(&u, &x, 8);
  return u;
}

//: pl_f32_from_bits
static inline float pl_f32_from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}

//: pl_f64_from_bits
static inline double pl_f64_from_bits(uint64_t u) {
  double x;
  memcpy(&x, &u, 8);
  return x;
}

//: pl_fail
/* Records the first failure: its code, the number of its check, and the values of the check. */
static int32_t pl_fail(Ctx *ctx, int32_t code, int32_t site, const int64_t *values) {
  if (ctx->error[0] == 0) {
    ctx->error[0] = code;
    ctx->error[1] = site;
    memcpy(&ctx->error[2], values, 6 * sizeof(int64_t));
  }
  return code;
}

//: pl_status
/* Converts a code to the status that the functions of the header return: each check has its own. */
static int32_t pl_status(const Ctx *ctx, int32_t code) { return code == 2 ? 16 + (int32_t)ctx->error[1] : code; }

//: pl_read_$t for i16 i32 i64 u16 u32 u64 f16 bf16 f32 f64
/* Memory that is accessed as several types is read and written by bytes: strict aliasing allows only that. */
static inline $T pl_read_$t(const uint8_t *p) {
  $T x;
  memcpy(&x, p, sizeof x);
  return x;
}

//: pl_write_$t for i16 i32 i64 u16 u32 u64 f16 bf16 f32 f64
static inline void pl_write_$t(uint8_t *p, $T x) { memcpy(p, &x, sizeof x); }

//: pl_min_$t for i8 i16 i32 i64 u8 u16 u32 u64
static inline $T pl_min_$t($T a, $T b) { return a < b ? a : b; }

//: pl_max_$t for i8 i16 i32 i64 u8 u16 u32 u64
static inline $T pl_max_$t($T a, $T b) { return a < b ? b : a; }

//: pl_min_$t for f32 f64
/* NaN if either is NaN; -0.0 is less than +0.0: if a == b, the bits differ only in the sign of zeros. */
static inline $T pl_min_$t($T a, $T b) {
  if (a < b) return a;
  if (b < a) return b;
  return a == b ? pl_$t_from_bits(pl_$t_bits(a) | pl_$t_bits(b)) : a + b;
}

//: pl_max_$t for f32 f64
static inline $T pl_max_$t($T a, $T b) {
  if (a < b) return b;
  if (b < a) return a;
  return a == b ? pl_$t_from_bits(pl_$t_bits(a) & pl_$t_bits(b)) : a + b;
}

//: pl_abs_$t for i8 i16 i32 i64
static inline $T pl_abs_$t($T a) { return a < 0 ? ($T)(0 - ($U)a) : a; }

//: pl_floordiv_$t for i8 i16 i32 i64
static inline $T pl_floordiv_$t($T a, $T b) {
  $T q;
  if (b == 0) return 0;
  if (b == -1) return ($T)(0 - ($U)a);
  q = ($T)(a / b);
  return ($T)(q - (a % b != 0 && (a < 0) != (b < 0)));
}

//: pl_floormod_$t for i8 i16 i32 i64
static inline $T pl_floormod_$t($T a, $T b) {
  $T r;
  if (b == 0 || b == -1) return 0;
  r = ($T)(a % b);
  return ($T)(r != 0 && (r < 0) != (b < 0) ? r + b : r);
}

//: pl_floordiv_$t for u8 u16 u32 u64
static inline $T pl_floordiv_$t($T a, $T b) { return ($T)(b == 0 ? 0 : a / b); }

//: pl_floormod_$t for u8 u16 u32 u64
static inline $T pl_floormod_$t($T a, $T b) { return ($T)(b == 0 ? 0 : a % b); }

//: pl_shl_$t for i8 i16 i32 i64 u8 u16 u32 u64
/* A shift by the width or more, or by a negative number, shifts everything out. */
static inline $T pl_shl_$t($T a, $T b) { return ($W)b < $B ? ($T)(($U)a << b) : ($T)0; }

//: pl_shr_$t for i8 i16 i32 i64
static inline $T pl_shr_$t($T a, $T b) { return ($T)(a >> (($W)b < $B ? b : $B - 1)); }

//: pl_shr_$t for u8 u16 u32 u64
static inline $T pl_shr_$t($T a, $T b) { return b < $B ? ($T)(a >> b) : ($T)0; }

//: pl_$t_of_f32 for i8 i16 i32 i64
/* Casts to integers truncate and saturate; NaN becomes 0. */
static inline $T pl_$t_of_f32(float x) { return x >= $LIMITf ? $MAX : x <= -$LIMITf ? $MIN : x == x ? ($T)x : 0; }

//: pl_$t_of_f64 for i8 i16 i32 i64
static inline $T pl_$t_of_f64(double x) { return x >= $LIMIT ? $MAX : x <= -$LIMIT ? $MIN : x == x ? ($T)x : 0; }

//: pl_$t_of_f32 for u8 u16 u32 u64
static inline $T pl_$t_of_f32(float x) { return x >= $LIMITf ? $MAX : x > -1.0f ? ($T)x : 0; }

//: pl_$t_of_f64 for u8 u16 u32 u64
static inline $T pl_$t_of_f64(double x) { return x >= $LIMIT ? $MAX : x > -1.0 ? ($T)x : 0; }

//: pl_abs_$t for f32 f64
static inline $T pl_abs_$t($T x) { return pl_$t_from_bits(pl_$t_bits(x) & ~(($W)1 << ($B - 1))); }

//: pl_signed_$t for f32 f64
/* `size`, which is not negative, with the sign of x (copysign). */
static inline $T pl_signed_$t($T size, $T x) { return pl_$t_from_bits(pl_$t_bits(size) | (pl_$t_bits(x) & (($W)1 << ($B - 1)))); }

//: pl_round_$t for f32 f64
/* Adding 2^$D leaves no room for a fraction: the sum is rounded to nearest even. Larger numbers, infinities and NaN stay as they are. */
static inline $T pl_round_$t($T x) {
  const $T size = pl_abs_$t(x);
  return size < $MAGIC ? pl_signed_$t((size + $MAGIC) - $MAGIC, x) : x;
}

//: pl_trunc_$t for f32 f64
static inline $T pl_trunc_$t($T x) {
  const $T size = pl_abs_$t(x), near = (size + $MAGIC) - $MAGIC;
  return size < $MAGIC ? pl_signed_$t(near > size ? near - 1 : near, x) : x;
}

//: pl_floor_$t for f32 f64
static inline $T pl_floor_$t($T x) {
  const $T t = pl_trunc_$t(x);
  return t > x ? t - 1 : t;
}

//: pl_ceil_$t for f32 f64
static inline $T pl_ceil_$t($T x) {
  const $T t = pl_trunc_$t(x);
  return t < x ? t + 1 : t;
}

//: pl_sqrt_$t for f32 f64
/* Correctly rounded, by the machine's instruction if there is one: compilers would link the library's function, because it sets errno. */
#if !defined(PLIANT_PORTABLE) && defined(__GNUC__) && defined(__SSE2__)
static inline $T pl_sqrt_$t($T x) {
  $T y;
  __asm__("sqrt$SSE %1, %0" : "=x"(y) : "x"(x));
  return y;
}
#elif !defined(PLIANT_PORTABLE) && defined(__GNUC__) && defined(__aarch64__)
static inline $T pl_sqrt_$t($T x) {
  $T y;
  __asm__("fsqrt %$ARM0, %$ARM1" : "=w"(y) : "w"(x));
  return y;
}
#elif !defined(PLIANT_PORTABLE) && defined(__GNUC__) && defined(__ARM_FP) && (__ARM_FP & $VFP)
static inline $T pl_sqrt_$t($T x) {
  $T y;
  __asm__("vsqrt.$t %$REG0, %$REG1" : "=$CON"(y) : "$CON"(x));
  return y;
}
#else
static inline $T pl_sqrt_$t($T x) {
  const $W bits = pl_$t_bits(x), one = ($W)1 << $D;
  $W m = bits & (one - 1), root = 0, rest = 0;
  int32_t e = (int32_t)(bits >> $D), n;
  if (x == 0 || x != x || e == (1 << $E) - 1) return x; /* zeros, NaN, infinity */
  if (x < 0) return pl_$t_from_bits(($W)((2 << $E) - 1) << ($D - 1)); /* NaN */
  if (e == 0) {
    for (e = 1; m < one; --e) m <<= 1;
  } else {
    m |= one;
  }
  e -= (1 << ($E - 1)) - 1;
  m <<= $B - $D - 2 + (e & 1); /* an even exponent */
  e = (e - (e & 1)) / 2;
  for (n = 0; n < $D + 2; ++n) { /* one bit of the root for two bits of the number; the last bit is for rounding */
    rest = (rest << 2) | (m >> ($B - 2));
    m <<= 2;
    root <<= 1;
    if (rest > 2 * root) {
      rest -= 2 * root + 1;
      root += 1;
    }
  }
  return pl_$t_from_bits((($W)(e + (1 << ($E - 1)) - 2) << $D) + ((root + 1) >> 1)); /* the leading bit adds 1 to the exponent */
}
#endif

//: pl_fma_f32
/* One rounding. In software: the product is exact in f64, the sum is rounded to odd there, so that the cast equals a single rounding. */
static inline float pl_fma_f32(float a, float b, float c) {
#if defined(__FP_FAST_FMAF) && !defined(PLIANT_PORTABLE)
  return __builtin_fmaf(a, b, c);
#else
  const double p = (double)a * b, d = c, s = p + d, t = s - p, error = (p - (s - t)) + (d - t);
  uint64_t bits = pl_f64_bits(s);
  if ((error < 0 || error > 0) && (bits & 1) == 0) bits += (error > 0) == (s > 0) ? 1 : UINT64_MAX;
  return (float)pl_f64_from_bits(bits);
#endif
}

//: pl_fma_f64
/* One rounding. In software: the product of the significands in two words, the third number aligned with it (bits that are shifted out
   leave a sticky 1 in the last place), their sum, and its leading bits rounded at the position that the exponent gives. */
static inline double pl_fma_f64(double x, double y, double z) {
#if defined(__FP_FAST_FMA) && !defined(PLIANT_PORTABLE)
  return __builtin_fma(x, y, z);
#else
  const double v[3] = {x, y, z};
  uint64_t m[3], hi, lo, zh, zl, middle, kept, lost;
  int32_t e[3], n, unit, d, shift;
  uint32_t negative, minus;
  for (n = 0; n < 3; ++n) {
    const uint64_t bits = pl_f64_bits(v[n]);
    m[n] = bits & ((UINT64_C(1) << 52) - 1);
    e[n] = (int32_t)(bits >> 52) & 0x7ff;
    if (e[n] == 0x7ff) return n < 2 ? x * y + z : z; /* infinity or NaN; a finite product must not overflow against it */
    if (e[n] == 0 && m[n] == 0) { /* a zero: the product is exact, or there is nothing but it to round */
      if (n < 2) return x * y + z;
      break;
    }
    if (e[n] == 0) {
      for (e[n] = 1; m[n] < UINT64_C(1) << 52; --e[n]) m[n] <<= 1;
    } else {
      m[n] |= UINT64_C(1) << 52;
    }
    m[n] <<= 1; /* the product then ends in two zeros, so a sticky 1 in the last place stays correct after a subtraction */
    e[n] -= 1023 + 53;
  }
  if (n == 2) return x * y; /* z is 0: a product that underflows keeps its sign */
  middle = (m[0] >> 32) * (m[1] & 0xffffffffu) + (m[0] & 0xffffffffu) * (m[1] >> 32);
  lo = (m[0] & 0xffffffffu) * (m[1] & 0xffffffffu);
  hi = (m[0] >> 32) * (m[1] >> 32) + (middle >> 32);
  middle <<= 32;
  lo += middle;
  hi += lo < middle;
  unit = e[0] + e[1];
  d = e[2] - unit; /* the unit of z is 2^d units of the product */
  zh = 0;
  zl = m[2];
  if (d >= 64) { /* shift the product down to 64 bits below the unit of z */
    n = d - 64;
    unit = e[2] - 64;
    zh = zl;
    zl = 0;
    if (n >= 128) {
      lo = 1;
      hi = 0;
    } else if (n >= 64) {
      lo = (hi >> (n - 64)) | (lo != 0 || (n > 64 && (hi << (128 - n)) != 0));
      hi = 0;
    } else if (n > 0) {
      lo = (lo >> n) | (hi << (64 - n)) | ((lo << (64 - n)) != 0);
      hi >>= n;
    }
  } else if (d > 0) {
    zh = zl >> (64 - d);
    zl <<= d;
  } else if (d <= -64) {
    zl = 1;
  } else if (d < 0) {
    zl = (zl >> -d) | ((zl << (64 + d)) != 0);
  }
  negative = (uint32_t)((pl_f64_bits(x) ^ pl_f64_bits(y)) >> 63);
  minus = negative ^ (uint32_t)(pl_f64_bits(z) >> 63);
  if (!minus) {
    lo += zl;
    hi += zh + (lo < zl);
  } else {
    hi = hi - zh - (lo < zl);
    lo -= zl;
    if (hi >> 63) {
      negative ^= 1;
      lo = 0 - lo;
      hi = 0 - hi - (lo != 0);
    }
  }
  if ((hi | lo) == 0) return x * y + z;
  if (hi == 0) {
    hi = lo;
    lo = 0;
    unit -= 64;
  }
  while (hi >> 63 == 0) {
    hi = (hi << 1) | (lo >> 63);
    lo <<= 1;
    --unit;
  }
  hi |= lo != 0;
  unit += 64 + 63; /* the exponent of the leading bit */
  if (unit > 1023) return pl_f64_from_bits((uint64_t)negative << 63 | UINT64_C(0x7ff) << 52);
  shift = 11 + (unit < -1022 ? -1022 - unit : 0); /* a denormal has fewer bits */
  kept = shift > 63 ? 0 : hi >> shift;
  lost = shift > 64 ? 1 : hi << (64 - shift);
  kept += (lost >> 63) & ((lost << 1 != 0) | (kept & 1));
  kept += (uint64_t)(unit < -1022 ? 0 : unit + 1022) << 52;
  return pl_f64_from_bits((uint64_t)negative << 63 | kept);
#endif
}

//: pl_odd_f32
/* f64 to f32 by round-to-odd: a second rounding to fewer bits then equals a single rounding of the f64. */
static inline float pl_odd_f32(double x) {
  const float near = (float)x;
  uint32_t bits = pl_f32_bits(near);
  if ((x < near || x > near) && (bits & 1) == 0) bits += pl_abs_f64(near) > pl_abs_f64(x) ? UINT32_MAX : 1;
  return pl_f32_from_bits(bits);
}

//: pl_sticky_i64
/* A number that f64 holds exactly and that rounds to bf16 as x does: lost bits leave a sticky 1. */
static inline int64_t pl_sticky_i64(int64_t x) {
  const uint64_t u = (uint64_t)x, low = u & 4095;
  return u + UINT64_C(0x100000000) < UINT64_C(0x200000000) ? x : (int64_t)((u - low) | (low != 0 ? 4096 : 0));
}

//: pl_sticky_u64
static inline uint64_t pl_sticky_u64(uint64_t x) {
  const uint64_t low = x & 4095;
  return x < UINT64_C(0x100000000) ? x : (x - low) | (low != 0 ? 4096 : 0);
}

//: pl_f32_of_bf16
static inline float pl_f32_of_bf16(uint16_t h) { return pl_f32_from_bits((uint32_t)h << 16); }

//: pl_bf16_of_f32
static inline uint16_t pl_bf16_of_f32(float x) {
  const uint32_t bits = pl_f32_bits(x);
  return (uint16_t)(x != x ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

//: pl_f32_of_f16
/* A denormal is normalized by giving it an exponent and subtracting that power of two again. */
static inline float pl_f32_of_f16(uint16_t h) {
  const uint32_t size = (uint32_t)(h & 0x7fff) << 13;
  uint32_t bits = size + (112u << 23);
  if (size >= 31u << 23) bits = size + (224u << 23);
  if (size < 1u << 23) bits = pl_f32_bits(pl_f32_from_bits(size + (113u << 23)) - 0x1p-14f);
  return pl_f32_from_bits(bits | (uint32_t)(h & 0x8000) << 16);
}

//: pl_f16_of_f32
/* Below the least normal number, adding a power of two rounds at the right bit. */
static inline uint16_t pl_f16_of_f32(float x) {
  const uint32_t bits = pl_f32_bits(x), size = bits & 0x7fffffffu;
  uint32_t code = (size + 0xc8000fffu + ((size >> 13) & 1)) >> 13;
  if (size < 113u << 23) code = pl_f32_bits(pl_f32_from_bits(size) + 0.5f) - (126u << 23);
  if (size >= 143u << 23) code = size > 255u << 23 ? 0x7e00u : 0x7c00u;
  return (uint16_t)(code | (bits >> 16 & 0x8000u));
}

//: pl_f16_of_$t for bool i8 i16 i32 i64 u8 u16 u32 u64
/* f32 holds exactly every integer that is finite in f16. */
static inline uint16_t pl_f16_of_$t($T x) { return pl_f16_of_f32((float)x); }

//: pl_bf16_of_$t for bool i8 i16 u8 u16
static inline uint16_t pl_bf16_of_$t($T x) { return pl_bf16_of_f32((float)x); }

//: pl_bf16_of_$t for i32 u32
static inline uint16_t pl_bf16_of_$t($T x) { return pl_bf16_of_f32(pl_odd_f32((double)x)); }

//: pl_bf16_of_$t for i64 u64
static inline uint16_t pl_bf16_of_$t($T x) { return pl_bf16_of_f32(pl_odd_f32((double)pl_sticky_$t(x))); }

//: pl_$t_of_f64 for f16 bf16
static inline uint16_t pl_$t_of_f64(double x) { return pl_$t_of_f32(pl_odd_f32(x)); }

//: pl_code_$t for i4 u4 i2 u2 f4e2m1
/* Element k of packed elements of $S bits, low bits first. */
static inline uint8_t pl_code_$t(const uint8_t *p, size_t k) { return (uint8_t)(p[k / $N] >> (k % $N * $S) & $MASK); }

//: pl_pack_$t for i4 u4 i2 u2 f4e2m1
static inline void pl_pack_$t(uint8_t *p, size_t k, uint32_t code) {
  const uint32_t shift = (uint32_t)(k % $N) * $S;
  p[k / $N] = (uint8_t)((p[k / $N] & ~((uint32_t)$MASK << shift)) | (code & $MASK) << shift);
}

//: pl_load_$t for i4 i2
static inline int8_t pl_load_$t(const uint8_t *p, size_t k) { return (int8_t)((pl_code_$t(p, k) ^ $TOP) - $TOP); }

//: pl_load_$t for u4 u2
static inline uint8_t pl_load_$t(const uint8_t *p, size_t k) { return pl_code_$t(p, k); }

//: pl_store_$t for i4 i2
static inline void pl_store_$t(uint8_t *p, size_t k, int8_t x) { pl_pack_$t(p, k, (uint8_t)x); }

//: pl_store_$t for u4 u2
static inline void pl_store_$t(uint8_t *p, size_t k, uint8_t x) { pl_pack_$t(p, k, x); }

//: pl_decode_$t for f8e5m2 f8e4m3 f8e4m3fn f4e2m1 f8e5m2fnuz f8e4m3fnuz
static inline float pl_decode_$t(uint8_t code) {
  const uint32_t size = (uint32_t)(code & ($TOP - 1)) << (23 - $D);
  uint32_t bits = size + ((127u - $BIAS) << 23);
  if (size < 1u << 23) bits = pl_f32_bits(pl_f32_from_bits(size + ((128u - $BIAS) << 23)) - $LEAST);
  if ($INFINITE && size >= $LARGE << (23 - $D)) bits = size + ((255u << 23) - ($LARGE << (23 - $D)));
  if (($NANSIZE && size == $NAN << (23 - $D)) || ($NOMINUS && code == $NAN)) bits = 0x7fc00000u;
  return pl_f32_from_bits(bits | (uint32_t)(code & $TOP) << (32 - $S));
}

//: pl_encode_$t for f8e5m2 f8e4m3 f8e4m3fn f4e2m1 f8e5m2fnuz f8e4m3fnuz
/* Rounded to nearest even; below the least normal number, adding a power of two rounds at the right bit. */
static inline uint8_t pl_encode_$t(float x) {
  const uint32_t bits = pl_f32_bits(x), size = bits & 0x7fffffffu;
  uint32_t code = (size + $ROUND + ((size >> (23 - $D)) & 1)) >> (23 - $D), sign = bits >> (32 - $S) & $TOP;
  if (code > $LARGE) code = $LARGE;
  if (size < (128u - $BIAS) << 23) code = pl_f32_bits(pl_f32_from_bits(size) + $SCALE) - pl_f32_bits($SCALE);
  if ($NOMINUS && code == 0) sign = 0;
  return (uint8_t)(size > 0x7f800000u ? $NAN : code | sign);
}

//: pl_decode_f8e8m0
static inline float pl_decode_f8e8m0(uint8_t code) {
  return pl_f32_from_bits(code == 255 ? 0x7fc00000u : code == 0 ? 1u << 22 : (uint32_t)code << 23);
}

//: pl_encode_f8e8m0
/* The exponent of the nearest power of two (a tie takes the larger one); zero, negative numbers, infinity and NaN become NaN. */
static inline uint8_t pl_encode_f8e8m0(float x) {
  const uint32_t bits = pl_f32_bits(x);
  if (bits - 1 >= 0x7f7fffffu) return 255;
  return (uint8_t)(bits <= 1u << 22 ? 0 : (bits + (1u << 22)) >> 23);
}

//: pl_load_$t for f8e5m2 f8e4m3 f8e4m3fn f8e5m2fnuz f8e4m3fnuz f8e8m0
static inline float pl_load_$t(const uint8_t *p, size_t k) { return pl_decode_$t(p[k]); }

//: pl_store_$t for f8e5m2 f8e4m3 f8e4m3fn f8e5m2fnuz f8e4m3fnuz f8e8m0
static inline void pl_store_$t(uint8_t *p, size_t k, float x) { p[k] = pl_encode_$t(x); }

//: pl_load_f4e2m1
static inline float pl_load_f4e2m1(const uint8_t *p, size_t k) { return pl_decode_f4e2m1(pl_code_f4e2m1(p, k)); }

//: pl_store_f4e2m1
static inline void pl_store_f4e2m1(uint8_t *p, size_t k, float x) { pl_pack_f4e2m1(p, k, pl_encode_f4e2m1(x)); }
