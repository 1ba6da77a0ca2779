//! Programs as plain data: a spec, which is compiled, and the arguments of a run.

use muse_core::quant::tile::TileFormat;

use crate::buffer::Buffer;
use crate::cores::{Core, Cores};

/// A FIFO of pages in the memory of a core, through which its kernels pass data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CircularBuffer {
    /// The index that kernels use.
    pub index: u32,
    /// The format of a page, which is one tile.
    pub format: TileFormat,
    /// Capacity in pages.
    pub pages: u32,
    /// Whether its F32 values are copied to the destination registers with all of their bits. Such
    /// a buffer cannot be an operand of products or reductions, which take 19 bits of a value.
    pub unpack_to_f32: bool,
}

/// The processor of a core that runs a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Processor {
    /// The first data movement processor, which reads by convention.
    Reader,
    /// The second data movement processor, which writes by convention.
    Writer,
    /// The compute processors, with f32 accumulation and the highest math fidelity.
    Compute,
}

/// How the pages of a buffer are distributed, which kernels take as compile-time arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accessor {
    /// Interleaved over all banks of DRAM.
    Dram,
}

/// A kernel and its compile-time arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// C++ source.
    pub source: &'static str,
    /// Where it runs.
    pub processor: Processor,
    /// The first compile-time arguments.
    pub constants: Vec<u32>,
    /// Further compile-time arguments, one accessor per buffer that it reads or writes. The
    /// addresses of these buffers are its common runtime arguments, which all cores share.
    pub accessors: Vec<Accessor>,
    /// Preprocessor macros, defined as 1.
    pub defines: Vec<&'static str>,
}

/// Everything of a program that is known when it is compiled. Equal specs are compiled once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProgramSpec {
    /// The cores that run it.
    pub cores: Cores,
    /// Circular buffers of each core.
    pub buffers: Vec<CircularBuffer>,
    /// Kernels of each core.
    pub kernels: Vec<Kernel>,
    /// Number of semaphores of each core. Their ids count from 0, and each begins at 0.
    pub semaphores: u32,
}

/// A runtime argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// The address of a buffer.
    Address(u64),
    /// An integer.
    U32(u32),
    /// A float, passed as its bits.
    F32(f32),
}

impl Arg {
    /// The address of `buffer`.
    pub fn address(buffer: &Buffer) -> Self {
        Self::Address(buffer.address())
    }

    fn word(self) -> u32 {
        match self {
            Self::Address(at) => u32::try_from(at).expect("addresses in a bank have 32 bits"),
            Self::U32(value) => value,
            Self::F32(value) => value.to_bits(),
        }
    }
}

/// A program spec with the runtime arguments of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is compiled.
    pub spec: ProgramSpec,
    /// For each kernel of the spec and each core: the addresses of its buffers, then its own
    /// arguments.
    pub args: Vec<Vec<(Core, Vec<Arg>)>>,
}

impl Plan {
    /// For each kernel: the common arguments, then those of each core.
    pub(crate) fn words(&self) -> impl Iterator<Item = (Vec<u32>, Vec<(Core, Vec<u32>)>)> {
        let words = |args: &[Arg]| args.iter().map(|arg| arg.word()).collect::<Vec<u32>>();
        assert_eq!(self.args.len(), self.spec.kernels.len(), "arguments of every kernel");
        self.spec.kernels.iter().zip(&self.args).map(move |(kernel, args)| {
            let count = kernel.accessors.len();
            let shared = args.first().map_or(&[][..], |(_, args)| &args[..count]);
            let own = args.iter().map(|(core, args)| {
                assert_eq!(args[..count], *shared, "all cores have the same buffers");
                (*core, words(&args[count..]))
            });
            (words(shared), own.collect())
        })
    }

    /// Number of cores that run it.
    pub fn cores(&self) -> u64 {
        u64::from(self.spec.cores.count())
    }
}
