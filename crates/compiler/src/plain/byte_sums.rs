//! The bodies of `MatMulInteger` and `QLinearMatMul` for a GPU: sums of products of bytes, one a
//! thread. Input: a program with the macros of `quantized.rs` (`MM`, `NN`, `KK`), the matrices, and
//! the texts of zero points and of the value that a sum becomes; output: the program's body for a
//! GPU. Two loops put four bytes that lie behind each other along the sum into a word, so that a
//! thread multiplies four pairs at once. Sums wrap around in 32 bits.

use super::matmul::Batched;
use super::program::{Program, loops, offset, product, strides};
use squall_core::DType;

/// `dot4` adds the products of four bytes with a sign by four others to a sum.
const DOT4: &str = "static int dot4(unsigned a, unsigned b, int sum) {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 610
  return __dp4a((int)a, (int)b, sum);
#else
  unsigned all = (unsigned)sum;
  for (int i = 0; i < 32; i += 8)
    all += (unsigned)((int)(signed char)(a >> i) * (int)(signed char)(b >> i));
  return (int)all;
#endif
}
";

/// The rows and columns of two matrices as bodies for a GPU name them.
pub(super) fn row_and_column(batched: &Batched) -> [String; 2] {
    let axes = batched.batch.len();
    [format!("i{axes}"), format!("i{}", axes + 1)]
}

/// Writes the body. `zeros` are the zero points of a row and of a column, and `store` does
/// something with `sum`, an int, whose place among the results is `at`.
pub(super) fn on_device(
    p: &mut Program,
    matrices: [usize; 2],
    batched: &Batched,
    zeros: &[String; 2],
    store: &str,
) -> Result<(), String> {
    let [a, b] = matrices;
    let [m, n, k] = batched.extents;
    if m * n * k == 0 {
        return Ok(());
    }
    let words = (k + 3) / 4;
    let (rows, right) = (product(p.shape(a)?) / k, product(p.shape(b)?) / (n * k));
    for (name, value) in [("WORDS", words), ("LEFT_ROWS", rows), ("RIGHTS", right)] {
        p.int(name, value);
    }
    p.table("dot4", DOT4.into());
    // Bytes without a sign get one: 128 is taken from them and from their zero points.
    let mut turn = [0, 0];
    for (turn, i) in turn.iter_mut().zip(matrices) {
        *turn = if p.dtype(i)? == DType::U8 { 128 } else { 0 };
    }
    let pointers = p.device_pointer("unsigned", "left", rows * words, 4)
        + &p.device_pointer("unsigned", "right", right * words * n, 4);
    let packed = |element: &str, turn: i64, to: &str| {
        format!(
            "    unsigned word = 0;
    for (long k = 4 * w; k < 4 * w + 4 && k < KK; k++)
      word |= (unsigned)(unsigned char)({element} ^ {turn}) << 8 * (k - 4 * w);
    {to} = word;
  }}
"
        )
    };
    let of_words = |steps: &[i64], size: i64, words: i64| -> String {
        offset("i", &steps.iter().map(|s| s / size * words).collect::<Vec<i64>>())
    };
    let [row, column] = row_and_column(batched);
    let extents = [&batched.batch[..], &[m, n]].concat();
    let inner = format!(
        "    const unsigned *a = left + ({}) + {row} * WORDS;
    const unsigned *b = right + ({}) + {column};
    int both = 0, of_row = 0, of_column = 0;
    for (long w = 0; w < WORDS; w++) {{
      const unsigned u = a[w], v = b[w * NN];
      both = dot4(u, v, both);
      of_row = dot4(u, 0x01010101u, of_row);
      of_column = dot4(0x01010101u, v, of_column);
    }}
    const unsigned p = (unsigned)((int){} - {}), q = (unsigned)((int){} - {});
    const int sum = (int)((unsigned)both - p * (unsigned)of_column - q * (unsigned)of_row
      + p * q * (unsigned)KK);
    const long at = {};
    {store}",
        of_words(&batched.a, m * k, m * words),
        of_words(&batched.b, n * k, words * n),
        zeros[0],
        turn[0],
        zeros[1],
        turn[1],
        offset("i", &strides(&extents)),
    );
    let text = format!(
        "{pointers}  for (long r = 0; r < LEFT_ROWS; r++)
  for (long w = 0; w < WORDS; w++) {{
{}  for (long s = 0; s < RIGHTS; s++)
  for (long w = 0; w < WORDS; w++)
  for (long n = 0; n < NN; n++) {{
{}{}",
        packed(&format!("x{a}[r * KK + k]"), turn[0], "left[r * WORDS + w]"),
        packed(&format!("x{b}[(s * KK + k) * NN + n]"), turn[1], "right[(s * WORDS + w) * NN + n]"),
        loops("i", &extents, &inner)
    );
    p.on_device(&text);
    Ok(())
}
