//! The Makefile and CMakeLists.txt of an exported C library, filled in from the templates in
//! `text/`. Input: a [`Build`] (name, kernels, compiler flags); output: the two texts, which
//! `mod.rs` writes.

use super::flags::Flags;
use super::interface::Name;
use super::sources::filled;
use crate::inference::network::Kernel;
use squall_measure::cpu::Toolchain;
use std::fmt::Write as _;

/// What the build files are filled in with.
pub struct Build<'a> {
    /// The library's name.
    pub name: &'a Name,
    /// Its kernels.
    pub kernels: &'a [Kernel<'a>],
    /// The flags of all kernels.
    pub flags: &'a Flags,
    /// The toolchain, which says the flags of a single kernel.
    pub toolchain: &'a Toolchain,
    /// How many threads a run is made for.
    pub threads: usize,
    /// Whether there is an operator for ONNX Runtime.
    pub onnxruntime: bool,
}

/// The Makefile's rules for ONNX Runtime's custom operator.
const ORT_RULE: &str = "
all: lib@NAME@_ort.so

lib@NAME@_ort.so: src/ort.c $(OBJECTS)
\t$(CC) $(STRICT) -O2 $(CFLAGS) -shared $(LDFLAGS) $(OPENMP) -o $@ src/ort.c $(OBJECTS) \\
\t  -lm -ldl -lpthread
";

const ORT_CMAKE: &str = "
add_library(@NAME@_ort MODULE src/ort.c)
set_target_properties(@NAME@_ort PROPERTIES C_STANDARD 99 C_VISIBILITY_PRESET hidden
  RUNTIME_OUTPUT_DIRECTORY \"${PROJECT_SOURCE_DIR}\"
  LIBRARY_OUTPUT_DIRECTORY \"${PROJECT_SOURCE_DIR}\")
find_package(Threads REQUIRED)
target_link_libraries(@NAME@_ort PRIVATE @NAME@ ${CMAKE_DL_LIBS} Threads::Threads)
";

impl Build<'_> {
    /// Whether the library has threads of its own where the caller gives none.
    fn openmp(&self) -> bool {
        self.threads > 1 && self.flags.openmp
    }

    /// Flags that only some compilers know, of all kernels.
    fn tiled(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for k in self.kernels {
            for flag in &self.toolchain.optimisation(k.source)[1..] {
                if !all.contains(flag) {
                    all.push(flag);
                }
            }
        }
        all
    }

    fn place(&self, template: &str, more: &[(&str, &str)]) -> String {
        let (name, upper) = (self.name.text(), self.name.upper());
        let (tiled, wanted) = (self.tiled().join(" "), self.flags.wanted.join(" "));
        let common = [
            ("NAME", name),
            ("UPPER", &upper),
            ("CC", &self.flags.compiler),
            ("MACHINE", &self.flags.machine),
            ("TUNE", &self.flags.tune),
            ("WANTED", &wanted),
            ("TILED", &tiled),
        ];
        // The places of the text that is put in are filled too.
        filled(&filled(template, more), &common)
    }

    /// The Makefile.
    pub fn makefile(&self) -> String {
        let (mut objects, mut rules) = (String::new(), String::new());
        for (i, k) in self.kernels.iter().enumerate() {
            let symbol = k.symbol(self.name);
            let end = if i + 1 < self.kernels.len() { " \\\n" } else { "" };
            let _ = write!(objects, "  build/{symbol}.o{end}");
            let own = self.toolchain.optimisation(k.source);
            let tiled = if own.len() > 1 { " $(TILED)" } else { "" };
            let more: String = k.source.flags.iter().map(|f| format!(" '{f}'")).collect();
            let _ = write!(
                rules,
                "build/{symbol}.o: src/{symbol}.c | build\n\t$(CC) $(STRICT) {}{tiled} \
                 $(KERNEL){} $(CFLAGS) -c -o $@ $<\n",
                own[0],
                more.replace('$', "$$")
            );
        }
        if self.threads > 1 {
            rules += "build/pool.o: src/pool.c | build\n\t$(CC) $(STRICT) -O2 $(OPENMP) $(CFLAGS) \
                      -c -o $@ $<\n";
        }
        let several = self.threads > 1;
        self.place(
            include_str!("text/Makefile"),
            &[
                ("OPENMP", if self.openmp() { "-fopenmp" } else { "" }),
                ("POOL_OBJECT", if several { " build/pool.o" } else { "" }),
                ("OBJECTS", &objects),
                ("RULES", &rules),
                ("ORT", if self.onnxruntime { ORT_RULE } else { "" }),
                ("ORT_FILES", if self.onnxruntime { "lib@NAME@_ort.so" } else { "" }),
            ],
        )
    }

    /// The CMakeLists.txt.
    pub fn cmake(&self) -> String {
        let (mut sources, mut properties) = (String::new(), String::new());
        for (i, k) in self.kernels.iter().enumerate() {
            let symbol = k.symbol(self.name);
            let end = if i + 1 < self.kernels.len() { "\n" } else { "" };
            let _ = write!(sources, "  src/{symbol}.c{end}");
            let own = self.toolchain.optimisation(k.source);
            let tiled = if own.len() > 1 { ";${tiled}" } else { "" };
            let more: String = k.source.flags.iter().map(|f| format!(";{f}")).collect();
            let _ = writeln!(
                properties,
                "set_source_files_properties(src/{symbol}.c PROPERTIES COMPILE_OPTIONS\n  \
                 \"{}{tiled};${{kernel}}{more}\")",
                own[0]
            );
        }
        let openmp = "find_package(OpenMP COMPONENTS C)\nif(OpenMP_C_FOUND)\n  \
                      target_link_libraries(@NAME@ PUBLIC OpenMP::OpenMP_C)\nendif()\n";
        let several = self.threads > 1;
        self.place(
            include_str!("text/CMakeLists.txt"),
            &[
                ("POOL_SOURCE", if several { " src/pool.c" } else { "" }),
                ("SOURCES", &sources),
                ("PROPERTIES", &properties),
                ("OPENMP_CMAKE", if self.openmp() { openmp } else { "" }),
                ("ORT", if self.onnxruntime { ORT_CMAKE } else { "" }),
            ],
        )
    }
}
