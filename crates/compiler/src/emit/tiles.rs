//! Prints loops of the mode `amx` (`nest/amx.rs`) as AMX instructions on tile registers; for
//! compilers that may not use these the prelude defines the same steps as loops over arrays, so
//! that the text means the same everywhere. Input: such a loop; output: a line such as `TILE_DOT(0,
//! 4, 6);`. Methods of the printer for vectors.

use super::dialect::fill;
use super::printer::Printer;
use crate::nest::{Loop, TilePlace, TileRegisters, TileWork, tile_step};
use squall_core::AMX_TILES;
use squall_core::expr::Binary;

impl Printer<'_> {
    /// The lines before and after statements that multiply tiles. They configure the shapes of the
    /// tile registers, and release the registers, which makes thread switches cheap again.
    pub(super) fn tile_frame(&self, r: TileRegisters) -> [String; 2] {
        self.helper("tiles");
        let all = AMX_TILES.registers;
        let list = |f: &dyn Fn(i64) -> i64| {
            (0..all).map(|i| f(i).to_string()).collect::<Vec<_>>().join(", ")
        };
        let is_right = |i| i >= r.sums + r.left;
        let is_left = |i| i >= r.sums && !is_right(i);
        let rows = list(&|i| if is_right(i) { r.depth } else { r.rows });
        let bytes = list(&|i| 4 * if is_left(i) { r.depth } else { AMX_TILES.rows });
        let shape = format!("{{1, 0, {{0}}, {{{bytes}}}, {{{rows}}}}}");
        let begin = format!("  static const struct tile_shapes shapes = {shape};\n");
        [begin + "  TILES_BEGIN(shapes)\n", "  TILES_END()\n".into()]
    }

    /// A step on tiles, where registers hold the sums.
    pub(super) fn tile_loop(&mut self, l: &Loop) -> Option<()> {
        let registers = self.simd.tiles?;
        let step = tile_step(self.n, l).ok()?;
        let tile = self.fold(&step.at).offset() / (registers.rows * AMX_TILES.rows);
        match step.work {
            TileWork::Zero => self.line(&format!("TILE_ZERO({tile});")),
            TileWork::Store(to) => {
                let place = self.tile_place(&to);
                self.line(&format!("TILE_STORE({tile}, {place});"));
            }
            TileWork::Multiply { op, left, right, .. } => {
                let a = self.tile_factor(&left, registers, 0);
                let b = self.tile_factor(&right, registers, 1);
                let word = if op == Binary::Dot { "TILE_DOT" } else { "TILE_DOT_PAIR" };
                // Without AMX, loops stand in for the instruction; they multiply single elements by
                // this function.
                self.function(if op == Binary::Dot { "dot" } else { "dot_pair" }, 1);
                self.line(&format!("{word}({tile}, {a}, {b});"));
            }
        }
        Some(())
    }

    /// The register that holds a factor; where none does yet, the factor is loaded into one.
    fn tile_factor(&mut self, p: &TilePlace, r: TileRegisters, side: usize) -> i64 {
        let first = r.sums + if side == 0 { 0 } else { r.left };
        let count = if side == 0 { r.left } else { AMX_TILES.registers - r.sums - r.left };
        let key = (p.buffer, self.fold(&p.at));
        let held = &mut self.simd.loaded;
        let turn = held.turn[side];
        let list = if side == 0 { &mut held.left } else { &mut held.right };
        list.resize(count as usize, None);
        if let Some(i) = list.iter().position(|x| x.as_ref() == Some(&key)) {
            return first + i as i64;
        }
        list[turn] = Some(key);
        held.turn[side] = (turn + 1) % count as usize;
        let register = first + turn as i64;
        let place = self.tile_place(p);
        self.line(&format!("TILE_LOAD({register}, {place});"));
        register
    }

    /// The first element of a tile, and bytes from row to row.
    fn tile_place(&mut self, p: &TilePlace) -> String {
        let at = self.fold(&p.at);
        fill("&$1, $2", &[&self.place(p.buffer, &at), &(4 * p.stride).to_string()])
    }
}

/// The shapes of all registers, as `ldtilecfg` reads them.
pub(crate) const SHAPES: &str = r#"struct tile_shapes {
  unsigned char palette, start, zero[14];
  unsigned short bytes[16];
  unsigned char rows[16];
} __attribute__((aligned(64)));
"#;

/// The instructions of AMX but for its products. Linux keeps the registers for programs that ask
/// for it (`arch_prctl`, ARCH_REQ_XCOMP_PERM), which is asked when the program is loaded.
pub(crate) const INSTRUCTIONS: &str = r#"
static __attribute__((constructor)) void ask_for_tiles(void) {
  long answer = 158;
  __asm__ volatile("syscall" : "+a"(answer) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
}
#define TILES_BEGIN(shapes) __asm__ volatile("ldtilecfg %0" :: "m"(shapes));
#define TILES_END() __asm__ volatile("tilerelease" ::);
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
#define TILE_LOAD(t, p, bytes) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t :: "r"(p), "r"((long)(bytes)) : "memory")
#define TILE_STORE(t, p, bytes) \
  __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" :: "r"(p), "r"((long)(bytes)) : "memory")"#;

/// The C text ahead of a program that uses AMX tiles.
pub(super) fn prelude() -> String {
    let amx = "#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AMX_BF16__)";
    format!("{SHAPES}{amx}{INSTRUCTIONS}{PRODUCTS}")
}

/// The products, and loops that stand for all of it where there is no AMX.
const PRODUCTS: &str = r#"
#define TILE_DOT(c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define TILE_DOT_PAIR(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#else
typedef int tile_element __attribute__((may_alias));
struct tile { int at[16][16]; };
static void tile_copy(struct tile *t, const struct tile_shapes *s, int i, char *p, long bytes,
                      int out) {
  for (int r = 0; r < s->rows[i]; r++)
    for (int e = 0; e < s->bytes[i] / 4; e++) {
      tile_element *q = (tile_element *)(p + r * bytes) + e;
      if (out) *q = t->at[r][e];
      else t->at[r][e] = *q;
    }
}
#define TILES_BEGIN(shapes) \
  struct tile tiles[8] = {0}; \
  const struct tile_shapes *kept_shapes = &shapes;
#define TILES_END()
#define TILE_ZERO(t) tiles[t] = (struct tile){0}
#define TILE_LOAD(t, p, bytes) tile_copy(&tiles[t], kept_shapes, t, (char *)(p), bytes, 0)
#define TILE_STORE(t, p, bytes) tile_copy(&tiles[t], kept_shapes, t, (char *)(p), bytes, 1)
#define TILE_PRODUCT(c, a, b, add) \
  for (int m = 0; m < kept_shapes->rows[c]; m++) \
    for (int n = 0; n < 16; n++) \
      for (int k = 0; k < kept_shapes->rows[b]; k++) \
        tiles[c].at[m][n] = add(tiles[c].at[m][n], tiles[a].at[m][k], tiles[b].at[k][n])
#define TILE_DOT(c, a, b) TILE_PRODUCT(c, a, b, dot_f)
#define TILE_DOT_PAIR(c, a, b) TILE_PRODUCT(c, a, b, tile_add_pair)
#endif
"#;

/// The sum of floats that a tile keeps by their bits, where no instruction adds pairs.
pub(super) const PRELUDE_PAIRS: &str = "static inline int tile_add_pair(int s, int a, int b) {
  union pair_bits sum = {(unsigned)s};
  sum.x = dot_pair_f(sum.x, a, b);
  return (int)sum.bits;
}
";
