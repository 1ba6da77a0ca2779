//! The command line.
#![allow(unreachable_pub, missing_docs, reason = "the macro writes public items without documents")]

use std::path::PathBuf;

xflags::xflags! {
    /// Build tasks of muse.
    cmd xtask {
        /// Everything CI does, stopping at the first failure. Run it before a push.
        cmd ci {}
        /// The workspace's rules: layers, file heads, unsafe, retired names, documents, versions,
        /// goldens.
        /// Prints the largest files and functions.
        cmd tidy {}
        /// Generates the messages and stubs of muse-proto from proto/.
        cmd codegen {
            /// Change nothing; fail when what is committed is not what would be generated.
            optional --check
        }
        /// Prints the manifest lines of reference files that are new or changed.
        cmd golden {
            /// Fail when a file is not listed, is missing, is too large or has another hash.
            optional --check
        }
        /// Measures kernels and whole steps.
        cmd bench {
            /// A few iterations only: shows that every bench runs, measures nothing.
            optional --smoke
        }
        /// Feeds broken input to every reader of untrusted files. Runs until stopped.
        cmd fuzz {
            /// One target; all in turn when absent.
            optional target: String
            /// Ten seconds a target.
            optional --smoke
        }
        /// Runs clients of others against the built server; skips aloud what this machine lacks.
        cmd clients {}
        /// Runs a file of protocol cases; ends with `N passed, M failed` and the ids that failed.
        cmd cases {
            /// JSON lines, such as tests/golden/atem/cases.jsonl.
            required file: PathBuf
            /// Only cases of this kind.
            optional --kind kind: String
        }
        /// Simulates seeded arrivals, cancellations and exhaustion against the engine.
        cmd sim {
            /// How many seeds.
            required --seeds seeds: u64
            /// The first seed, 0 when absent.
            optional --from from: u64
        }
        /// Installs Tenstorrent's parts into a folder, or finds those of the machine.
        cmd tt-setup {
            /// The folder; what is in it stays.
            required folder: PathBuf
            /// Install nothing; print what is missing and how to get it.
            optional --check
        }
        /// Compiles every kernel for Tenstorrent devices in every configuration.
        cmd tt-kernels {
            /// The folder that tt-setup made; MUSE_TT_DIR when absent.
            optional --tt tt: PathBuf
        }
        /// Compares every kernel with the CPU; ends with `N passed, M failed`.
        cmd parity {
            /// Whose kernels: tt.
            required device: String
            /// What they run on: mock, wolfpine, sim or card.
            required --lane lane: String
            /// The folder that tt-setup made; MUSE_TT_DIR when absent.
            optional --tt tt: PathBuf
            /// Only cases with this in their name.
            optional --case case: String
            /// Only one case a kernel.
            optional --quick
            /// Count what kernels move and multiply, and compare it with the minimum.
            optional --cost
        }
        /// Writes a GGUF file of the published width with random weights, to measure speed on.
        cmd wide {
            /// How many layers; the published model has 52.
            required --layers layers: u32
            /// Format of the body's matrices and the embedding, such as q4_k; --type means it too.
            required --format format: String
            /// Format of the head, q6_k when absent.
            optional --head head: String
            /// The file, which is not there yet.
            required --out out: PathBuf
        }
        /// Runs llama-bench and `muse bench` in turn on the same file and prints how much faster
        /// muse is.
        cmd versus {
            /// Folder of llama-bench, built for this machine.
            required --llama llama: PathBuf
            /// GGUF file; may be given several times.
            repeated --model model: PathBuf
            /// Threads of both, one a core when absent.
            optional --threads threads: usize
            /// Runs of each, 3 when absent.
            optional --pairs pairs: usize
            /// Measurements a run, 3 when absent.
            optional --repeats repeats: u32
            /// Length of the prompt, 512 when absent.
            optional --prompt prompt: u32
            /// Tokens to decode, 32 when absent.
            optional --tokens tokens: u32
            /// Rows of a verify, 2,4,8,16 when absent.
            optional --rows rows: String
        }
    }
}
