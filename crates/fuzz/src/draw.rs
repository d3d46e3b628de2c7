//! The source of choices for the generators of hostile files: [`Draw`] gives numbers, names and
//! picks, either from a seed (without end) or from the bytes of a fuzzer, which thereby searches
//! among structures instead of bytes. The same seed or bytes give the same choices.

/// A source of choices. Of the same seed or bytes all choices are the same.
pub struct Draw<'a> {
    state: u64,
    bytes: Option<&'a [u8]>,
}

impl<'a> Draw<'a> {
    /// Choices without end, from a seed.
    pub fn of_seed(seed: u64) -> Draw<'static> {
        Draw { state: seed ^ 0x9e37_79b9_7f4a_7c15, bytes: None }
    }

    /// As many choices as there are bytes; after them all choices are the first.
    pub fn of_bytes(bytes: &'a [u8]) -> Draw<'a> {
        Draw { state: 0, bytes: Some(bytes) }
    }

    /// 64 bits (splitmix64).
    pub fn bits(&mut self) -> u64 {
        if let Some(bytes) = &mut self.bytes {
            let (head, rest) = bytes.split_at(bytes.len().min(8));
            *bytes = rest;
            let mut eight = [0; 8];
            eight[..head.len()].copy_from_slice(head);
            return u64::from_le_bytes(eight);
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 where `n` is 0. Fuzzers spend one byte on small numbers.
    pub fn below(&mut self, n: usize) -> usize {
        let n = n.max(1);
        if let Some([first, rest @ ..]) = self.bytes.filter(|_| n <= 256) {
            let first = *first;
            self.bytes = Some(rest);
            return first as usize % n;
        }
        (self.bits() % n as u64) as usize
    }

    /// Whether something happens that does so once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) + 1 == n
    }

    /// A pick among some things.
    pub fn one<'t, T: ?Sized>(&mut self, of: &[&'t T]) -> &'t T {
        of[self.below(of.len())]
    }

    /// A whole number: mostly small, at times at a limit of its type.
    pub fn integer(&mut self) -> i64 {
        match self.below(12) {
            0 => *[i64::MAX, i64::MIN, -1, 0, 1 << 31, 1 << 62, i64::MAX / 8, u32::MAX as i64][..]
                .get(self.below(8))
                .unwrap_or(&0),
            1 => self.bits() as i64,
            2 => -(self.below(64) as i64),
            3 => self.below(65536) as i64,
            _ => self.below(40) as i64,
        }
    }

    /// An extent as operators have them, at times absurd.
    pub fn extent(&mut self) -> i64 {
        if self.once_in(12) {
            return self.integer();
        }
        [1, 1, 2, 3, 4, 7, 8, 16, 28, 32, 64, 100, 256][self.below(13)]
    }

    /// A number in text: whole, broken, with exponent, or none at all.
    pub fn number(&mut self) -> String {
        match self.below(10) {
            0 => self
                .one(&["NaN", "-Infinity", "1e999", "-0", "0x10", "1e308", "--1", "", "null"])
                .into(),
            1 => format!("{}.{}", self.integer(), self.below(1000)),
            2 => format!("{}e{}", self.below(100), self.integer() % 400),
            _ => self.integer().to_string(),
        }
    }

    /// A name: mostly plain, at times with what terminals, shells, paths and C take as commands.
    pub fn name(&mut self) -> String {
        const PLAIN: [&str; 8] = ["x", "conv1", "a_b", "Y", "matmul_3", "layer.0/w", "k", "input"];
        const NASTY: [&str; 14] = [
            "\u{1b}[2J\u{1b}]0;t\u{7}",
            "../../etc/passwd",
            "*/ system(\"x\"); /*",
            "a\nb",
            "\"; touch pwned; #",
            "$(touch pwned)",
            "`touch pwned`",
            "%s%n%n",
            "\u{202e}gpj",
            "é𝕏\u{0}z",
            "",
            " ",
            "'; DROP TABLE record; --",
            "\\",
        ];
        match self.below(8) {
            0 => self.one(&NASTY).to_string(),
            1 if self.once_in(20) => "n".repeat(100_000),
            _ => self.one(&PLAIN).to_string(),
        }
    }
}
